"""What kernels did, as tables for people: `tables`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msa_ops.emulator.chip import Launch
from msa_ops.emulator.jit import JitLaunch
from msa_ops.emulator.run import Report

SHOWN_OPCODES = 20


def _waits(launch: Launch | JitLaunch) -> str:
    """At barriers, or by what for where a chip parts them."""
    parts = launch.report.waits_for
    return ", ".join(f"{name} {n:,}" for name, n in parts.items()) if parts else f"{launch.report.waits:,}"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def tables(launches: Report | Sequence[Launch | JitLaunch]) -> str:
    """Tables of what kernels did, as `msa-ops emulate --report` prints them: one row a launch, then the most frequent
    opcodes of all.

    launches: a report, or the launches of a chip (`VirtualChip.launches`) or of a session (`JitSession.run`).
    """
    from msa_ops.cli.table import format_table

    if isinstance(launches, Report):
        launches = [JitLaunch("-", launches)]

    rows = [
        [
            launch.kernel,
            f"{launch.report.total_warp_instructions:,}",
            f"{launch.report.global_bytes_read:,}",
            f"{launch.report.global_bytes_written:,}",
            ", ".join(f"{kind} {flops:,}" for kind, flops in launch.report.matrix_flops.items()) or "-",
        ]
        for launch in launches
    ]
    tensors = [
        [launch.kernel, name, *(f"{n:,}" for n in (moved.read, moved.read_first, moved.written, moved.written_first))]
        for launch in launches
        for name, moved in launch.report.tensors.items()
    ]
    memory = [
        [
            launch.kernel,
            _ratio(launch.report.global_sectors, launch.report.global_requests),
            f"{launch.report.shared_passes:,}",
            f"{launch.report.bank_conflicts:,}",
            _waits(launch),
            " ".join(f"{n:,}" for _, n in sorted(launch.report.instructions_of_warp.items())),
            " ".join(f"{n:,}" for _, n in sorted(launch.report.waits_of_warp.items())) or "-",
        ]
        for launch in launches
    ]
    spaces = [
        [launch.kernel, space, f"{moved.read:,}", f"{moved.written:,}"]
        for launch in launches
        for space, moved in launch.report.spaces.items()
    ]
    opcodes: Counter[str] = Counter()
    for launch in launches:
        opcodes.update(launch.report.warp_instructions)
    total = max(1, opcodes.total())
    frequent = [[name, f"{n:,}", f"{n / total:.1%}"] for name, n in opcodes.most_common(SHOWN_OPCODES)]
    return "\n".join(
        [
            "",
            format_table(["kernel", "warp instructions", "bytes read", "bytes written", "matrix flops"], rows),
            "",
            format_table(["kernel", "tensor", "bytes read", "once each", "bytes written", "once each"], tensors),
            "",
            format_table(
                [
                    "kernel",
                    "sectors a request",
                    "shared passes",
                    "conflicts",
                    "waits",
                    "instructions of warps 0, 1, ...",
                    "waits of warps 0, 1, ...",
                ],
                memory,
            ),
            "",
            *([format_table(["kernel", "space", "bytes read", "bytes written"], spaces), ""] if spaces else []),
            format_table(["opcode", "warp instructions", "share"], frequent),
        ]
    )
