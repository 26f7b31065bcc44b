"""Tiny PTX programs: one instruction between loads and a store, a lane an element."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from msa_ops.emulator import Report, run_ptx

HEAD = ".version 9.4\n.target sm_90a\n.address_size 64\n"
BITS = {"pred": 0, "b16": 2, "b32": 4, "b64": 8}


def kernel(body: str, parameters: int = 1, declarations: str = "", directives: str = "") -> str:
    """A module whose kernel `k` takes pointers p0, p1, ... in %rd0, %rd1, ...; %r0 is the thread, %rd15 the same."""
    names = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "".join(f"ld.param.u64 %rd{i}, [p{i}];\n" for i in range(parameters))
    return (
        f"{HEAD}{declarations}\n.visible .entry k({names})\n{directives}{{\n"
        ".reg .pred %p<16>; .reg .b8 %b<16>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<32>;\n"
        f"{loads}mov.u32 %r0, %tid.x;\ncvt.u64.u32 %rd15, %r0;\n{body}\nret;\n}}\n"
    )


def line_of(ptx: str, fragment: str) -> int:
    """Line of the only place where the fragment stands."""
    (line,) = [number for number, text in enumerate(ptx.splitlines(), 1) if fragment in text]
    return line


def apply(instruction: str, out: str, *operands: NDArray[np.generic], target: str = "sm_90a") -> NDArray[np.generic]:
    """Runs `instruction` ("add.s32 D, A, B") on each element of the operands; `out` is a NumPy type name.

    One warp works on 32 elements; the last one is filled up with the last element.
    """
    count = operands[0].size
    letters = "ABCEF"
    dtype = np.dtype(out)
    body, names = [], {}
    for i, operand in enumerate(operands):
        size = operand.dtype.itemsize
        names[letters[i]] = _register(i + 1, size)
        body += [*_address(i, size), f"ld.global.b{8 * size} {names[letters[i]]}, [%rd20];"]
    names["D"] = _register(8, dtype.itemsize)
    text = " ".join(names.get(part.rstrip(","), part.rstrip(",")) + ("," if part.endswith(",") else "")
                    for part in instruction.split())  # fmt: skip
    body += [
        text + ";",
        *_address(len(operands), dtype.itemsize),
        f"st.global.b{8 * dtype.itemsize} [%rd20], {names['D']};",
    ]
    padded = -(-count // 32) * 32
    arrays = [np.pad(operand.reshape(-1), (0, padded - count), mode="edge") for operand in operands]
    result = np.zeros(padded, dtype)
    thread = ["mov.u32 %r20, %ctaid.x;", "mad.lo.s32 %r0, %r20, 32, %r0;", "cvt.u64.u32 %rd15, %r0;"]
    ptx = kernel("\n".join([*thread, *body]), len(operands) + 1).replace(".target sm_90a", f".target {target}")
    run_ptx(ptx, "k", padded // 32, 32, [*arrays, result], chip=target)
    return result[:count]


def _register(index: int, size: int) -> str:
    return {1: f"%h{index}", 2: f"%h{index}", 4: f"%r{index}", 8: f"%rd{index + 20}"}[size]


def _address(pointer: int, size: int) -> list[str]:
    return [f"mul.lo.s64 %rd20, %rd15, {size};", f"add.s64 %rd20, %rd20, %rd{pointer};"]


def run(body: str, *arrays: NDArray[np.generic], threads: int = 32, blocks: int = 1, declarations: str = "",
        shared_memory: int = 0, max_instructions: int = 100_000, target: str = "sm_90a") -> Report:  # fmt: skip
    """Runs a kernel of such a body on these arrays."""
    text = kernel(body, len(arrays), declarations).replace(".target sm_90a", f".target {target}")
    return run_ptx(
        text, "k", blocks, threads, list(arrays), shared_memory, max_instructions=max_instructions, chip=target
    )
