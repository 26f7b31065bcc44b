"""Kernels of several GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msa_ops.emulator import JitSession
from msa_ops.emulator.cpu_as_gpu import CpuAsGpu
from tests.emulator.public.cases import Case, load, mended
from tests.emulator.public.ranks import ranks_of

FOLDER = "cute/blackwell/kernel/distributed"


def on_ranks(name: str, path: str, function: str, ranks: int, **keywords: Any) -> Case:
    """Calls a function of an example in every rank, each a GPU; they compare with their own reference and raise."""

    def run(folder: Path, session: JitSession) -> str:
        @contextlib.contextmanager
        def in_thread() -> Iterator[None]:
            with CpuAsGpu(session, group.synchronize):
                yield

        with ranks_of(session, ranks, in_thread) as group:
            module = load(folder, f"{FOLDER}/{path}")
            # One of them reads a global variable that only its command line sets.
            group.at_turn.append(lambda rank: setattr(module, "local_rank", rank))
            import cutlass

            group.run(
                lambda: getattr(module, function)(
                    **{key: value(cutlass) if callable(value) else value for key, value in keywords.items()}
                )
            )
        return f"by its own reference on {ranks} devices"

    return Case(name, "sm_100a", run)


ONCE = {"M": 16, "N": 256, "warmup_iterations": 0, "iterations": 1, "skip_ref_check": False, "benchmark": False}
GEMM = {
    "mnkl": (256, 256, 128, 1),
    "acc_dtype": lambda cutlass: cutlass.Float32,
    "a_major": "k",
    "b_major": "k",
    "c_major": "n",
}
HALVES = {"ab_dtype": lambda cutlass: cutlass.Float16, "c_dtype": lambda cutlass: cutlass.Float16}
ONE = {"mma_tiler_mn": (128, 128), "cluster_shape_mn": (1, 1), "use_2cta_instrs": False}
PAIR = {"mnkl": (512, 256, 128, 1), "mma_tiler_mn": (256, 128), "cluster_shape_mn": (2, 1), "use_2cta_instrs": True}

GEMMS = [
    on_ranks(f"gemm_{name}{suffix}", f"distributed_gemm_{path}_blackwell.py", "run", 2, **{**GEMM, **HALVES, **tiles})
    for name, path in (
        ("all_reduce", "all_reduce"),
        ("all_reduce_lamport", "all_reduce_lamport"),
        ("all_reduce_ldxstmc", "all_reduce_ldxstmc"),
        ("reduce_scatter", "reduce_scatter"),
    )
    for suffix, tiles in (("", ONE), ("_pair", PAIR))
]
DIRECT = {**ONE, "use_tma_store": False}
GEMMS += [
    on_ranks(
        f"gemm_all_reduce_{name}", "distributed_gemm_all_reduce_blackwell.py", "run", 2, **{**GEMM, **HALVES, **changed}
    )
    for name, changed in (
        ("direct", DIRECT),
        ("bf16", {**ONE, "c_dtype": lambda cutlass: cutlass.BFloat16}),
        ("f32", {**ONE, "c_dtype": lambda cutlass: cutlass.Float32}),
        ("e4m3", {**ONE, "c_dtype": lambda cutlass: cutlass.Float8E4M3FN}),
        ("e5m2", {**ONE, "c_dtype": lambda cutlass: cutlass.Float8E5M2}),
    )
]
GEMMS += [
    on_ranks(
        f"gemm_blockscaled_all_reduce{suffix}",
        "distributed_gemm_blockscaled_all_reduce_ldmcxstmc_blackwell.py",
        "run",
        2,
        **{key: value for key, value in {**GEMM, **tiles}.items() if key not in ("acc_dtype", "use_2cta_instrs")},
        a_dtype=lambda cutlass: cutlass.Float4E2M1FN,
        b_dtype=lambda cutlass: cutlass.Float4E2M1FN,
        sf_dtype=lambda cutlass: cutlass.Float8E4M3FN,
        sf_vec_size=16,
        c_dtype=lambda cutlass: cutlass.Float16,
    )
    for suffix, tiles in (("", ONE), ("_pair", PAIR))
]

# Flags of tiles are counted up and waited for by all devices.
ACROSS_DEVICES = (
    (r"\bred\.release\.gpu\.", "red.release.sys."),  # `multimem.red`, too
    (r"\batom\.global\.acquire\.cas\.", "atom.global.sys.acquire.cas."),
)
POLLED_ACROSS_DEVICES = ((r"\bld\.relaxed\.gpu\.", "ld.acquire.sys."),)  # what follows reads the tile
# A tile is stored before its flag says so.
STORED_BEFORE_FLAG = ((r"cp\.async\.bulk\.wait_group\.read\s+0;", "cp.async.bulk.wait_group 0;"),)

CASES = [
    *(
        on_ranks(f"all_reduce_{name}_{ranks}", f"all_reduce_{name}.py", function, ranks, **ONCE)
        for name, function in (("simple", "run_all_reduce_simple"), ("one_shot_lamport", "run"))
        for ranks in (2, 4)
    ),
    *(
        on_ranks(
            f"all_reduce_two_shot_multimem_{ranks}",
            "all_reduce_two_shot_multimem.py",
            "run_all_reduce_multimem",
            ranks,
            **{**ONCE, "M": 256, "N": 512},
        )
        for ranks in (2, 4)
    ),
    *(
        on_ranks(f"all_reduce_tma_{ranks}", "all_reduce_tma.py", "run_all_reduce_tma", ranks, shape=(256, 256))
        for ranks in (2, 4)
    ),
    *GEMMS,
    *(
        on_ranks(
            f"all_gather_gemm_{ranks}",
            "distributed_all_gather_gemm_blackwell.py",
            "run",
            ranks,
            **{**GEMM, **HALVES, **ONE, "mnkl": (128 * ranks, 256, 128, 1)},
        )
        for ranks in (2, 4)
    ),
    *(
        mended(
            case,
            *ACROSS_DEVICES,
            *(POLLED_ACROSS_DEVICES if "scatter" in case.name else ()),
            *(() if "direct" in case.name else STORED_BEFORE_FLAG),
        )
        for case in GEMMS
        if "lamport" not in case.name
    ),
]
