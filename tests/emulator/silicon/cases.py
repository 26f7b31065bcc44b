"""Kernels that work on memory and matrices, with the bytes that they are given: the same in the emulator and on a GPU.

A case is a kernel with three parameters: addresses of what it is given and of what it changes, and a tensor map.
The bytes that it has changed are compared. What a GPU gave is kept in h200_cases.txt as digests. NumPy suffices to make
them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"


@dataclass(frozen=True)
class Map:
    """A tensor map, as the driver's functions take it; the tensor is in what the case is given or changes."""

    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, from dimension 1 on."""
    box: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    swizzle: str = "none"
    interleave: int = 0
    nan_outside: bool = False
    in_out: bool = False
    lower: tuple[int, ...] = ()
    """im2col: lower and upper corners, channels and pixels of a column, in place of a box."""
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0


@dataclass(frozen=True)
class Case:
    """body: %rd0 and %rd1 are the addresses of what is given and of what changes, %rd2 the map's, %r0 is the thread."""

    name: str
    body: str
    given: Bytes
    out: Bytes
    threads: int = 32
    shared: int = 0
    """Bytes of dynamic shared memory, `smem`."""
    map: Map | None = None
    blocks: int = 1
    cluster: int = 1
    declarations: str = field(default="")

    @property
    def entry(self) -> str:
        return "c_" + re.sub(r"\W", "_", self.name)

    @property
    def text(self) -> str:
        cluster = f".reqnctapercluster {self.cluster}, 1, 1\n" if self.cluster > 1 else ""
        return (
            f".visible .entry {self.entry}(.param .u64 in, .param .u64 out, .param .align 64 .b8 map[128])\n"
            f"{cluster}{{\n"
            ".reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .b64 %rd<40>;\n"
            f"{self.declarations}\nld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n"
            f"mov.b64 %rd2, map; cvta.param.u64 %rd2, %rd2;\nmov.u32 %r0, %tid.x;\n{self.body}\nret;\n}}\n"
        )


def module(cases: list[Case]) -> str:
    return HEAD + "".join(case.text for case in cases)


def generator(name: str) -> np.random.PCG64:
    """Whose raw stream NumPy promises to keep."""
    return np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def random_bytes(name: str, count: int) -> Bytes:
    return generator(name).random_raw(-(-count // 8)).view(np.uint8)[:count]


def chosen(name: str, values: NDArray[np.generic], count: int) -> NDArray[np.generic]:
    """`count` of the values."""
    return values[(generator(name).random_raw(count) % np.uint64(values.size)).astype(np.int64)]


def digest(out: Bytes) -> str:
    return hashlib.sha256(out.tobytes()).hexdigest()[:16]
