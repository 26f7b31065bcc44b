"""A session in which packages compile anew and find a GPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from msa_ops.emulator import JitSession, jit
from tests.emulator.public.host import cpu_as_gpu

SCHEDULES = (None, 1, 2)
PACKAGES = ("quack", "flash_attn")


@contextmanager
def gpu(chip: str) -> Iterator[JitSession]:
    """Inside, torch and CuTe-DSL show one GPU of this chip; what was compiled for another one is forgotten."""
    import quack.cache

    _forget_compiled()
    # What quack keeps on disk would be loaded past the session.
    with mock.patch.object(quack.cache, "CACHE_ENABLED", False), jit(chip) as session, cpu_as_gpu(session):
        yield session
    _forget_compiled()


def under_schedules(session: JitSession, call: Callable[[], Any], results: Callable[[Any], None]) -> None:
    """Makes the call in order and under random schedules; `results` looks at what each returned."""
    for seed in SCHEDULES:
        session.schedule(seed)
        returned: list[Any] = []
        assert session.run(lambda into=returned: into.append(call())), "nothing was launched"
        results(returned[0])


def _forget_compiled() -> None:
    """Empties the packages' caches of compiled functions and of what the GPU is."""
    for name, module in list(sys.modules.items()):
        if module is None or name.split(".")[0] not in PACKAGES:
            continue
        holders = [module, *(value for value in vars(module).values() if isinstance(value, type))]
        for holder in holders:
            for attribute in list(vars(holder)):
                value = getattr(holder, attribute, None)
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()
                if hasattr(getattr(value, "compile_cache", None), "clear"):
                    value.compile_cache.clear()
                if attribute.endswith("_plan_cache"):
                    value.clear()
    gc.collect()


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the GPU that nobody has written, for results."""
    return torch.empty(shape, dtype=dtype, device="cuda").fill_(torch.nan)
