"""One launch on the emulator: values to parameter bytes, memory to allocations, and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msa_ops import _C
from msa_ops.emulator import units
from msa_ops.emulator.arguments import (
    MAX_INSTRUCTIONS,
    check_options,
    flag,
    float_bytes,
    plain,
    several,
    text,
    three,
    whole,
)
from msa_ops.emulator.devices import ChipLike, device
from msa_ops.emulator.memory import Allocation, Pending, address_of, allocation, is_memory
from msa_ops.emulator.ptx_parameter import parameter_bytes
from msa_ops.emulator.source_lines import HINT_FOR_BUILT, told


@dataclass(frozen=True)
class TensorBytes:
    """Bytes that a launch moved from and to one tensor: as often as it asked for them, and each byte once."""

    read: int
    read_first: int
    written: int
    written_first: int


@dataclass(frozen=True)
class SpaceBytes:
    """Bytes that a launch read from and wrote to a space of memory, as often as it asked for them."""

    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class Report:
    """Exact counts of what was executed.

    warp_instructions: instructions issued by warps, by opcode. An instruction whose guard is false in every lane
        counts; an instruction that a warp executes once for each side of a branch counts twice.
    global_bytes_read, global_bytes_written: bytes that the lanes asked for; atomics count in both.
    matrix_flops: operations of matrix instructions, two a product that is added, by kind: f64, tf32, f16 (and BF16),
        f8f6f4, i8, i4, b1, mxf8f6f4, mxf4, mxf4nvf4; on gfx950 f16 (and BF16), f32, f64, f8f6f4, i8.
    tensors: bytes by tensor, of loads, stores, atomics, and copies by the bulk and tensor engines. A byte that two of
        them cover counts for the first one; if it is written, for the first one that may be written.
    global_requests, global_sectors: loads and stores of global memory that warps issued, and the 32-byte sectors that
        they touched: 4 a request are a perfect access of 4 bytes a lane.
    shared_passes, shared_passes_at_least: of loads and stores of shared memory, those of matrices (ldmatrix, stmatrix)
        too, the passes over the 32 banks, and those that no bank conflict would take. Copies and atomics are not in it.
    waits: times that a warp waited at a barrier or an mbarrier.
    instructions_of_warp: instructions by the warp's number in its block, which is its role in kernels that have roles.
    waits_of_warp: waits by the warp's number in its block.
    spaces: bytes of the other spaces: "shared" memory of the block itself, "cluster": shared memory of other blocks of
        the cluster (distributed shared memory), "local", "tensor" (loads, stores and copies), "peer": global memory of
        other devices, and "multicast": at multicast addresses, a request once for all devices; both count as global
        memory too. Copies count in the spaces of both ends; what matrix
        instructions take from memory as operands does not count. A space that was not used is not in it. On gfx950
        "shared" is the LDS, with loads to it, "local" scratch memory.
    launches: kernels launched.
    out_of_range_lanes: of gfx950: lanes whose access a buffer resource did not hold, so that they read 0 or wrote
        nothing.
    waits_for: of gfx950: times that a wave had to wait, by what for: barrier (as in `waits`), and vmcnt and lgkmcnt
        where s_waitcnt found more under way than it lets through.
    """

    warp_instructions: dict[str, int]
    global_bytes_read: int
    global_bytes_written: int
    matrix_flops: dict[str, int]
    tensors: dict[str, TensorBytes]
    global_requests: int
    global_sectors: int
    shared_passes: int
    shared_passes_at_least: int
    waits: int
    instructions_of_warp: dict[int, int]
    launches: int
    out_of_range_lanes: int = 0
    waits_for: dict[str, int] = field(default_factory=dict)
    waits_of_warp: dict[int, int] = field(default_factory=dict)
    spaces: dict[str, SpaceBytes] = field(default_factory=dict)

    @property
    def total_warp_instructions(self) -> int:
        return sum(self.warp_instructions.values())

    @property
    def bank_conflicts(self) -> int:
        return self.shared_passes - self.shared_passes_at_least


def opcodes() -> list[str]:
    """Every opcode that is executed, ascending, without modifiers that change nothing here (docs/emulator.md)."""
    return _C.emulated_opcodes()


def run_ptx(
    ptx: str,
    entry: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any],
    shared_memory: int = 0,
    tensors: Mapping[str, Any] | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    cluster: int | Sequence[int] | None = None,
    chip: ChipLike = "sm_90a",
    seed: int | None = None,
    sum_order: int | None = None,
    threads: int = 1,
    multiprocessors: int | None = None,
    pending: Sequence[Any] = (),
    non_portable_cluster: bool = False,
) -> Report:
    """Executes one launch of a kernel in PTX.

    ptx: the text of a module. entry: the kernel's name; "" for the only one.
    grid, block: up to three numbers, x first. shared_memory: bytes of dynamic shared memory.
    arguments: one a parameter: a CPU tensor or NumPy array (its address is passed, and exactly its bytes are memory
        that the kernel may use; a read-only array may only be read), None for a null pointer, a number, or bytes. The
        text says what a number becomes: a `.f32` takes integers that fp32 holds exactly, a `.u32` floats that are
        whole, a `.b32` the bits of either.
    tensors: more memory that the kernel may use, by name, when its addresses are passed in other ways.
    max_instructions: warp instructions after which the launch is given up.
    cluster: blocks of a cluster, x first; None: the launch says nothing of clusters, and has those that the kernel
        demands (`.reqnctapercluster`). non_portable_cluster: whether clusters of more than 8 blocks are allowed.
    chip: sm_90a, sm_100a, sm_103a or sm_107a, by arch or name ("H200", "B200"), or a platform or emulated chip
        (`msa_ops.emulate`) of these.
    seed: of a random schedule; None: warps take turns in order, asynchronous work happens as late as it can.
    sum_order: seed of the order in which matrix instructions add products in fp32; None: k ascending.
    threads: of the host, over which blocks are spread. With more than one, atomics come in any order.
    multiprocessors: another number than the chip has.
    pending: what an earlier launch may still be writing, because this one may begin before that one has ended: an
        array each, or a pair of the array and one of the same bytes before that launch. A block must not use it before
        it has executed griddepcontrol.wait; but a load that says that others write meanwhile (`ld.relaxed`, `.acquire`,
        `.volatile`) may, of a pair, and until then gives what stood there before (with `seed`: either, at random).

    Raises EmulatorFault for what the kernel does wrong (kind, kernel, line, block, warp, lane, address; entry: the
    kernel's name in the text; instruction: as written in the line; ptx: the text in which `line` counts; source:
    "FILE:LINE" if the text has line information, else None), PtxError (a ValueError) for text that is not PTX,
    UnsupportedPtx (a NotImplementedError) for instructions that the emulator lacks, both with `line` and before
    anything runs; ValueError for arguments or a launch that do not fit.
    """
    check_options(
        max_instructions=max_instructions, seed=seed, threads=threads, sum_order=sum_order, shared=shared_memory
    )
    check_text(ptx)
    text("entry", entry)
    several("arguments", arguments)
    arch, multiprocessors = device(chip, multiprocessors)
    units.load_for(ptx)
    declared = _C.ptx_parameters(ptx, entry)
    if len(declared) != len(arguments):
        raise ValueError(f"arguments: {len(arguments)}; the kernel takes {len(declared)}")
    allocations = allocations_of(arguments, tensors)
    parameters = _parameters(arguments, declared)
    shape = three("grid", grid), three("block", block)
    with told():
        return report_of(
            _C.emulate_ptx(
                ptx,
                entry,
                *shape,
                shared_memory,
                parameters,
                allocations,
                max_instructions,
                None if cluster is None else three("cluster", cluster),
                arch,
                seed,
                sum_order,
                threads,
                multiprocessors,
                pending_of(pending),
                flag("non_portable_cluster", non_portable_cluster),
            )
        )


def run_ptx_on_devices(
    ptx: str,
    entry: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Sequence[Any]],
    shared_memory: int = 0,
    tensors: Mapping[str, Any] | None = None,
    peer_access: bool = True,
    max_instructions: int = MAX_INSTRUCTIONS,
    cluster: int | Sequence[int] | None = None,
    chip: ChipLike = "sm_90a",
    seed: int | None = None,
    sum_order: int | None = None,
    threads: int = 1,
    multiprocessors: int | None = None,
    non_portable_cluster: bool = False,
) -> list[Report]:
    """Executes a launch of one kernel on each of several devices at the same time; they may wait for each other.

    arguments: those of each device, whose tensors are its memory. tensors: memory that all devices may use.
    peer_access: whether each device may also use the others' memory; in its report their tensors are "device 1
        argument 0" and so on, and what it moved from and to them is the space "peer". The rest is as in `run_ptx`.
    Returns the reports of the devices. Raises as `run_ptx`.
    """
    check_options(
        max_instructions=max_instructions, seed=seed, threads=threads, sum_order=sum_order, shared=shared_memory
    )
    check_text(ptx)
    text("entry", entry)
    flag("peer_access", peer_access)
    for i, own in enumerate(several("arguments", arguments)):
        several(f"arguments of device {i}", own)
    arch, multiprocessors = device(chip, multiprocessors)
    units.load_for(ptx)
    declared = _C.ptx_parameters(ptx, entry)
    if not arguments or any(len(own) != len(declared) for own in arguments):
        given = [len(own) for own in arguments]
        raise ValueError(f"arguments: {given}; the kernel takes {len(declared)} on each device")
    own_memory = [allocations_of(own, tensors) for own in arguments]
    by_device = [allocations_of(own, None, f"device {i} ") for i, own in enumerate(arguments)]
    with told():
        counters = _C.emulate_on_devices(
            ptx,
            entry,
            three("grid", grid),
            three("block", block),
            shared_memory,
            [_parameters(own, declared) for own in arguments],
            [
                memory + [one for other, peers in enumerate(by_device) if other != i for one in peers]
                if peer_access
                else memory
                for i, memory in enumerate(own_memory)
            ],
            max_instructions,
            None if cluster is None else three("cluster", cluster),
            arch,
            seed,
            sum_order,
            threads,
            multiprocessors,
            flag("non_portable_cluster", non_portable_cluster),
        )
    return [with_peers(report_of(one), lambda name: name.startswith("device ")) for one in counters]


def run_compiled(
    kernel_name: str,
    ptx: str,
    args: Sequence[Any],
    tensors: Mapping[str, Any] | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    chip: ChipLike = "sm_90a",
    seed: int | None = None,
    sum_order: int | None = None,
    multiprocessors: int | None = None,
) -> Report:
    """Runs the host launcher of a compiled kernel of this build, and executes what it launches from its PTX.

    kernel_name: as in `_C.compiled_kernels()`. ptx: the text that the build left beside the object.
    args: the launcher's arguments without the stream: tensors, ints, None, and floats for fp32 arguments.
    multiprocessors: another number than the chip has, which the launcher sees too.

    Raises as `run_ptx`; NotImplementedError if this build does not hold the kernel.
    """
    several("args", args)
    try:
        position = _C.find_kernel(text("kernel_name", kernel_name))
    except IndexError as error:
        raise NotImplementedError(str(error)) from None
    check_options(max_instructions=max_instructions, seed=seed, sum_order=sum_order)
    check_text(ptx)
    arch, multiprocessors = device(chip, multiprocessors)
    slots = [_slot(i, value) for i, value in enumerate(args)]
    memory = allocations_of(args, tensors)
    units.load_for(ptx)
    with told(HINT_FOR_BUILT, kernel_name):
        return report_of(
            _C.emulate_launch(
                position, ptx, memory, slots, max_instructions, arch, seed, sum_order, multiprocessors=multiprocessors
            )
        )


def allocations_of(arguments: Sequence[Any], tensors: Mapping[str, Any] | None, prefix: str = "") -> list[Allocation]:
    """The memory among a kernel's arguments, named by position, and that of `tensors`."""
    if tensors is not None and not isinstance(tensors, Mapping):
        raise TypeError(f"tensors: {type(tensors).__name__}; accepted: a mapping of names to tensors and arrays")
    named = {f"{prefix}argument {i}": value for i, value in enumerate(arguments) if is_memory(value)}
    for name, value in (tensors or {}).items():
        if not isinstance(name, str) or name in named:
            raise ValueError(f"tensors: {name!r}; accepted: strings that name no argument")
        named[name] = value
    return [allocation(name, value) for name, value in named.items()]


def pending_of(pending: Sequence[Any]) -> list[Pending]:
    """What an earlier launch may still be writing: arrays, or pairs of an array and what it held before.

    Raises ValueError for a pair of different sizes or gaps, TypeError for no list, and as `allocation`.
    """
    found = []
    for i, one in enumerate(several("pending", pending)):
        if isinstance(one, tuple) and len(one) != 2:
            raise ValueError(f"pending {i}: {len(one)} values; accepted: an array, or it and what it was before")
        array, earlier = one if isinstance(one, tuple) else (one, None)
        own = allocation(f"pending {i}", array)
        before = 0
        if earlier is not None:
            held = allocation(f"pending {i}, before", earlier)
            if held.bytes != own.bytes:
                raise ValueError(f"pending {i}: {own.bytes} bytes, of which {held.bytes} are given as they were before")
            if (held.run, held.steps) != (own.run, own.steps):
                raise ValueError(
                    f"pending {i}: the gaps between its rows are others before; accepted: the same strides"
                )
            before = held.address
        found.append(Pending(own.address, own.bytes, before, own.run, own.steps))
    return found


def check_text(ptx: Any) -> None:
    """Raises TypeError for anything but a string, ValueError for one that is no text."""
    text("ptx", ptx)


def _address(value: Any) -> int:
    return address_of("", value)


def _parameters(arguments: Sequence[Any], declared: Sequence[tuple[int, str]]) -> list[bytes]:
    return [parameter_bytes(i, value, *one) for i, (value, one) in enumerate(zip(arguments, declared, strict=True))]


def _slot(index: int, value: Any) -> int:
    """An argument as launchers take it, in eight bytes; fp32 in the lower four."""
    value = plain(value)
    if isinstance(value, float):
        return int.from_bytes(float_bytes(f"argument {index}", value, 4), "little")
    if value is None:
        return 0
    if is_memory(value):
        return _address(value)
    if not isinstance(value, int):
        raise TypeError(f"argument {index}: {type(value).__name__}; accepted: tensor, array, int, float, None")
    return whole(f"argument {index}", value, -(2**63), 2**63 - 1)


def report_of(counters: _C.EmulatorCounters) -> Report:
    return Report(
        counters.warp_instructions,
        counters.global_bytes_read,
        counters.global_bytes_written,
        counters.matrix_flops,
        {name: TensorBytes(*counts) for name, counts in counters.tensor_bytes.items()},
        counters.global_requests,
        counters.global_sectors,
        counters.shared_passes,
        counters.shared_passes_at_least,
        counters.waits,
        counters.instructions_of_warp,
        counters.launches,
        counters.out_of_range_lanes,
        counters.waits_for,
        counters.waits_of_warp,
        {space: SpaceBytes(*counts) for space, counts in counters.bytes_by_space.items()},
    )


def with_peers(report: Report, is_peer: Callable[[str], bool]) -> Report:
    """The report with what was moved from and to tensors of other devices, which are known by their names."""
    of_peers = [moved for name, moved in report.tensors.items() if is_peer(name)]
    peer = SpaceBytes(sum(one.read for one in of_peers), sum(one.written for one in of_peers))
    return replace(report, spaces={**report.spaces, "peer": peer}) if peer != SpaceBytes() else report
