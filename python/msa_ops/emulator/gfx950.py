"""One launch of a gfx950 code object on the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msa_ops import _C
from msa_ops.emulator.arguments import MAX_INSTRUCTIONS, check_options, float_bytes, plain, several, text, three
from msa_ops.emulator.memory import address_of, allocation, is_memory
from msa_ops.emulator.run import Report, allocations_of, report_of


def run_gfx950(
    code_object: bytes,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any] | bytes,
    lds: int = 0,
    tensors: Mapping[str, Any] | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    seed: int | None = None,
    uncached: Sequence[Any] = (),
    accept: Sequence[tuple[str, int, int]] = (),
) -> Report:
    """Executes one launch of a kernel of a code object for gfx950 (CDNA4).

    code_object: the ELF file, linked or relocatable. kernel: its name; "" for the only one.
    grid: workgroups; block: work-items of a workgroup; up to three numbers each, x first. lds: bytes of dynamic LDS.
    arguments: the bytes of the kernel arguments as the kernel lays them out, or one value an explicit argument: a CPU
        tensor or NumPy array (its address; exactly its bytes are memory that the kernel may use), an int, a float for
        arguments of 4 or 8 bytes, None for a null pointer, or bytes. Hidden arguments are filled in.
    tensors: more memory that the kernel may use, by name, when its addresses are passed in other ways.
    max_instructions: wave instructions after which the launch is given up. seed: of a random schedule.
    uncached: tensors and arrays in fine-grained memory, past the caches, with what lies between their rows: whatever is
        stored there is at system scope.
    accept: faults that are known, as (kind, first, last) instruction in the text: "race", "missing wait",
        "wait states", "uninitialized shared memory" and "out of bounds" of the LDS. The launch goes on as if it had
        gone well: with what the LDS or the register holds by then, 0 outside the LDS. Other kinds have no effect.

    Raises EmulatorFault (kind, kernel, line = offset of the instruction in .text, block, warp, lane, address) for what
    the kernel does wrong, CodeObjectError (a ValueError) for what is no code object of gfx950, UnsupportedGfx950 (a
    NotImplementedError) for instructions that the emulator lacks, with their addresses, before anything runs;
    ValueError for arguments or a launch that do not fit.
    """
    check_options(max_instructions=max_instructions, seed=seed, shared=lds)
    _check_kernel(code_object, kernel)
    if isinstance(arguments, bytes):
        kernarg, allocations = arguments, allocations_of((), tensors)
    else:
        kernarg, allocations = (
            pack_kernarg(code_object, kernel, several("arguments", arguments)),
            allocations_of(arguments, tensors),
        )
    shape = three("grid", grid), three("block", block)
    return report_of(
        _C.emulate_code_object(
            code_object,
            kernel,
            *shape,
            lds,
            kernarg,
            allocations,
            max_instructions,
            seed,
            _ranges(uncached),
            list(accept),
        )
    )


def run_gfx950_on_devices(
    code_object: bytes,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Sequence[Any] | bytes],
    lds: int = 0,
    tensors: Mapping[str, Any] | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    seed: int | None = None,
    uncached: Sequence[Any] = (),
    accept: Sequence[tuple[str, int, int]] = (),
) -> list[Report]:
    """Executes a launch of one kernel on each of several devices at the same time; they may wait for each other.

    arguments: those of each device. Every device may use the tensors of all (peer access) and `tensors`. The rest is as
    in `run_gfx950`; returns the reports of the devices.
    """
    check_options(max_instructions=max_instructions, seed=seed, shared=lds)
    _check_kernel(code_object, kernel)
    if not several("arguments", arguments):
        raise ValueError("arguments: none; accepted: those of at least one device")
    allocations = allocations_of((), tensors)
    kernargs = []
    for rank, values in enumerate(arguments):
        if isinstance(values, bytes):
            kernargs.append(values)
            continue
        kernargs.append(pack_kernarg(code_object, kernel, several(f"arguments of device {rank}", values)))
        allocations += allocations_of(values, None, f"device {rank} ")
    shape = three("grid", grid), three("block", block)
    counters = _C.emulate_code_object_on_devices(
        code_object,
        kernel,
        *shape,
        lds,
        kernargs,
        [allocations] * len(kernargs),
        max_instructions,
        seed,
        _ranges(uncached),
        list(accept),
    )
    return [report_of(count) for count in counters]


def _check_kernel(code_object: Any, kernel: Any) -> None:
    if not isinstance(code_object, bytes):
        raise TypeError(f"code_object: {type(code_object).__name__}; accepted: bytes")
    text("kernel", kernel)


def _ranges(values: Sequence[Any]) -> list[tuple[int, int]]:
    made = [allocation("uncached", value) for value in several("uncached", values)]
    return [(one.address, one.bytes) for one in made]


def pack_kernarg(code_object: bytes, kernel: str, arguments: Sequence[Any]) -> bytes:
    """The bytes of a kernel's explicit arguments. Raises ValueError if their number or a size does not fit."""
    _check_kernel(code_object, kernel)
    kernels = {found["name"]: found for found in _C.code_object_kernels(code_object)}
    if not kernel and len(kernels) == 1:
        (kernel,) = kernels
    if kernel not in kernels:
        raise ValueError(f"kernel: '{kernel}'; the code object has {', '.join(kernels)}")
    places = kernels[kernel]["arguments"]
    if len(places) != len(arguments):
        raise ValueError(f"arguments: {len(arguments)}; the kernel takes {len(places)}")
    made = bytearray(max((offset + size for offset, size, _ in places), default=0))
    for i, ((offset, size, _), value) in enumerate(zip(places, arguments, strict=True)):
        made[offset : offset + size] = _bytes_of(i, value, size)
    return bytes(made)


def _bytes_of(index: int, value: Any, size: int) -> bytes:
    value = plain(value)
    if isinstance(value, bytes):
        if len(value) != size:
            raise ValueError(f"argument {index}: {len(value)} bytes; accepted: {size}")
        return value
    if isinstance(value, float):
        return float_bytes(f"argument {index}", value, size)
    if is_memory(value) and size != 8:
        raise ValueError(
            f"argument {index}: {type(value).__name__}, whose address would be passed; the argument has {size} bytes, "
            "accepted: a number (of a tensor: x.item())"
        )
    number = 0 if value is None else address_of("", value) if is_memory(value) else value
    if not isinstance(number, int):
        raise TypeError(f"argument {index}: {type(value).__name__}; accepted: tensor, array, int, float, None, bytes")
    if not -(1 << (8 * size - 1)) <= number < 1 << (8 * size):
        raise ValueError(f"argument {index}: {number} does not fit into {size} bytes")
    return (number % (1 << (8 * size))).to_bytes(size, "little")
