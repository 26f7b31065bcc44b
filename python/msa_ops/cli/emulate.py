"""`msa-ops emulate`: runs an op's kernels on an emulated chip, compares with the reference and counts."""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msa_ops import whole_file

if TYPE_CHECKING:
    from msa_ops.bench.check import Comparison, Reference
    from msa_ops.emulator import Launch
    from msa_ops.registry import OpSpec

MOST_SCHEDULES = 1000
MOST_TOKENS = 1 << 24
"""Of a case: every number of `--set`, and the tokens of all requests. Caches, float64 references and scores of that
many fill tens of GB."""
FAULT_FIELDS = "kind", "kernel", "entry", "line", "instruction", "source", "block", "warp", "lane", "address"
SCHEMA = "msa-ops-emulate"


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "emulate",
        help="run an op's compiled kernels on an emulated chip",
        description="Runs the kernels of one op on a chip that is emulated on the CPU, instruction by instruction, and "
        "compares the results with the reference. Exit code: 0 right, 1 a wrong result or a fault of the kernel, 2 bad "
        "input, or a kernel that this build does not hold.",
    )
    parser.add_argument("--op", required=True, metavar="OP")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="sizes and options of the case; `--op OP --keys` lists them",
    )
    parser.add_argument("--keys", action="store_true", help="print the keys of --set for this op, and run nothing")
    parser.add_argument("--backend", metavar="NAME", help="default: what the registry chooses on the chip")
    parser.add_argument("--chip", default="sm_90a", metavar="CHIP", help="sm_90a, B200, ... (default %(default)s)")
    parser.add_argument("--arch", dest="chip", default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # its former name
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument(
        "--schedules", type=int, default=0, metavar="N", help="also under N random schedules (default %(default)s)"
    )
    parser.add_argument("--multiprocessors", type=int, metavar="N", help="of the chip; fewer are faster to emulate")
    parser.add_argument("--report", action="store_true", help="print what the kernels did")
    parser.add_argument("--json", metavar="FILE", help="write all counts; an older file of this verb is replaced")
    return parser


def run(args: argparse.Namespace) -> int:
    from msa_ops.bench import result, workload
    from msa_ops.bench.check import Reference
    from msa_ops.emulator import EmulatorFault, emulate, tables
    from msa_ops.registry import STORE

    if not 0 <= args.seed < 2**63:
        raise ValueError(f"--seed: {args.seed}; accepted: 0 to 2^63 - 1")
    if not 0 <= args.schedules <= MOST_SCHEDULES:
        raise ValueError(f"--schedules: {args.schedules}; accepted: 0 to {MOST_SCHEDULES}")
    if args.json is not None:
        result.check_path(args.json, SCHEMA, "emulate")
    (case,) = workload.single(args.op, args.set).cases
    if args.op not in STORE.ops():
        raise ValueError(f"--op: {args.op!r} is several ops; accepted: {', '.join(STORE.ops())}")
    spec = STORE.op(args.op)
    if args.keys:
        print(_keys(spec))
        return 0
    _check_sizes(spec, case.dims)
    label = case.name.removesuffix("[]")

    def fresh() -> Any:
        return spec.generate(args.seed, device="cpu", **case.dims)

    backend = args.backend or _chosen(spec, fresh(), args.chip)
    reference = Reference.run(spec, fresh)
    runs: list[dict[str, Any]] = []
    launches: list[Launch] = []
    for schedule in (None, *range(args.schedules)):
        start = time.perf_counter()
        fields = None
        name = "in turn" if schedule is None else f"random {schedule}"
        with emulate(args.chip, seed=schedule, multiprocessors=args.multiprocessors) as chip:
            try:
                found = _check(reference, spec, backend)
                problem = "; ".join(_outside(one) for one in found if not one.passed)
            except EmulatorFault as fault:
                source = getattr(fault, "source", None)
                problem = f"{fault} (source: {source})" if source else f"{fault}"
                fields = {name: getattr(fault, name, None) for name in FAULT_FIELDS}
        if schedule is None:
            launches = chip.launches
        if not chip.launches and not problem:
            reason = "" if backend == "reference" else "; the case gives it nothing to do"
            raise ValueError(f"{label}: {backend!r} launches no kernel on {chip.platform.arch}{reason}")
        seconds = time.perf_counter() - start
        instructions = sum(launch.report.total_warp_instructions for launch in chip.launches)
        runs.append(
            {
                "schedule": name,
                "right": not problem,
                "problem": problem,
                "fault": fields,
                "launches": _described(chip.launches),
            }
        )
        print(
            f"{label} {backend} on {chip.platform.arch}, {name}: {problem or 'right'} "
            f"({len(chip.launches)} launches, {instructions:,} warp instructions, {seconds:.1f} s)"
        )
    if args.report:
        print(tables(launches))
    if args.json is not None:
        data = {"schema": SCHEMA, "case": case.name, "backend": backend, "arch": chip.platform.arch, "runs": runs}
        whole_file.write(args.json, json.dumps(data, indent=1) + "\n")
    return 0 if all(one["right"] for one in runs) else 1


def _check_sizes(spec: OpSpec, dims: Mapping[str, Any]) -> None:
    """Raises ValueError for sizes whose memory an emulation does not have, before any of it is made."""
    for key, value in dims.items():
        numbers = [one for one in (value if isinstance(value, list | tuple) else (value,)) if type(one) is int]
        if sum(numbers) > MOST_TOKENS:
            raise ValueError(f"--set {key}: {sum(numbers):,} in all; accepted: up to {MOST_TOKENS:,}, for memory")
    defaults = inspect.signature(spec.generate).parameters
    if "batch" in defaults and "seq_len" in defaults:
        batch, seq_len = (dims.get(key, defaults[key].default) for key in ("batch", "seq_len"))
        if batch * seq_len > MOST_TOKENS:
            raise ValueError(
                f"--set: {batch:,} requests of {seq_len:,} tokens; accepted: up to {MOST_TOKENS:,} tokens in all, "
                "for memory"
            )


def _keys(spec: OpSpec) -> str:
    """A table of what `--set` takes for the op: key, values, default, and the variants if there are such."""
    from msa_ops.bench import workload
    from msa_ops.bench.decode import describe
    from msa_ops.cli.table import format_table

    parameters = inspect.signature(spec.generate).parameters
    rows = [
        [key, ", ".join(spec.variants) if key == "variant" else describe(hint), str(parameters[key].default)]
        for key, hint in workload.dimensions(spec.generate).items()
    ]
    return format_table(["key", "values", "default"], rows)


def _chosen(spec: OpSpec, args: Any, arch: str) -> str:
    """The backend that the registry chooses on the chip. Raises ValueError if no kernel of the op is for the chip,
    NoBackendError if none takes this call."""
    from msa_ops.registry import STORE, parse_platform
    from msa_ops.registry.backend import built_kernels
    from msa_ops.registry.overrides import AUTOMATIC
    from msa_ops.registry.selection import SELECTOR

    platform = parse_platform(arch)
    with_kernels = [
        op for op in STORE.ops() if any(one.compiled and platform.arch in one.archs for one in STORE.backends(op))
    ]
    if spec.name not in with_kernels:
        lacking = with_kernels and not any((op, platform.arch) in built_kernels() for op in with_kernels)
        raise ValueError(
            f"{spec.name} has no kernel for {platform.arch} that could be emulated; ops with kernels for it: "
            f"{', '.join(with_kernels) or 'none'}"
            + ("; this build of msa_ops holds none of these kernels, `make wheel` makes one that does" * bool(lacking))
        )
    return SELECTOR.choose(spec.name, platform, AUTOMATIC, lambda: spec.facts(args)).name


def _check(reference: Reference, spec: OpSpec, backend: str) -> list[Comparison]:
    return reference.check(spec, backend)


def _outside(one: Comparison) -> str:
    return f"{one.name}: {one.outside:,} of {one.elements:,} elements wrong, by up to {one.max_abs_error:g}"


def _described(launches: list[Launch]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [{"kernel": launch.kernel, **asdict(launch.report)} for launch in launches]
