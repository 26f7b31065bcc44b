"""Kernels of several GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msa_ops.emulator import JitSession
from tests.emulator.public.cases import Case, load
from tests.emulator.public.host import CpuAsGpu
from tests.emulator.public.ranks import ranks_of

FOLDER = "cute/blackwell/kernel/distributed"


def on_ranks(name: str, path: str, function: str, ranks: int, **keywords: Any) -> Case:
    """Calls a function of an example in every rank, each a GPU; they compare with their own reference and raise."""

    def run(folder: Path, session: JitSession) -> str:
        @contextlib.contextmanager
        def in_thread() -> Iterator[None]:
            with CpuAsGpu(session):
                yield

        with ranks_of(session, ranks, in_thread) as group:
            module = load(folder, f"{FOLDER}/{path}")
            group.run(lambda: getattr(module, function)(**keywords))
        return f"by its own reference on {ranks} devices"

    return Case(name, "sm_100a", run)


ONCE = {"M": 16, "N": 256, "warmup_iterations": 0, "iterations": 1, "skip_ref_check": False, "benchmark": False}

CASES = [
    *(
        on_ranks(f"all_reduce_{name}_{ranks}", f"all_reduce_{name}.py", function, ranks, **ONCE)
        for name, function in (("simple", "run_all_reduce_simple"), ("one_shot_lamport", "run"))
        for ranks in (2, 4)
    ),
]
