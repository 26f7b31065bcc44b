"""Logging of op calls, and dumps of their inputs. Off unless the environment asks; read once, at the first call.

MSA_OPS_LOG: 0 off, 1 op and backend, 2 also shapes and values of arguments; goes to the logger "msa_ops".
MSA_OPS_DUMP: a folder that receives each call's arguments as `<pid>/<number>_<op>.pt`, until MSA_OPS_DUMP_MIB
(default 1024) are written by the process.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger("msa_ops")


@dataclass
class Trace:
    level: int
    folder: Path | None
    budget: int  # bytes that may still be dumped
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __call__(self, op: str, backend: str, args: Any) -> None:
        if self.level >= 2:
            listed = ", ".join(f"{name}={_short(getattr(args, name))}" for name in args.__dataclass_fields__)
            logger.info("%s -> %s (%s)", op, backend, listed)
        elif self.level == 1:
            logger.info("%s -> %s", op, backend)
        if self.folder is not None:
            self._dump(self.folder, op, backend, args)

    def _dump(self, folder: Path, op: str, backend: str, args: Any) -> None:
        values = {name: getattr(args, name) for name in args.__dataclass_fields__}
        size = sum(value.numel() * value.element_size() for value in values.values() if isinstance(value, Tensor))
        if size > self.budget:
            logger.warning("%s: %d bytes not dumped, the budget of MSA_OPS_DUMP_MIB is used up", op, size)
            return
        self.budget -= size
        target = folder / str(os.getpid())
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"MSA_OPS_DUMP: {error}; accepted: a folder that can be written to") from None
        copies = {
            name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in values.items()
        }
        torch.save({"op": op, "backend": backend, "args": copies}, target / f"{next(self.numbers):06d}_{op}.pt")


def from_environment() -> Trace | None:
    """The trace that the environment asks for, or None. Raises ValueError for a value it does not know."""
    level, folder = os.environ.get("MSA_OPS_LOG", "0"), os.environ.get("MSA_OPS_DUMP")
    if level not in ("0", "1", "2"):
        raise ValueError(f"MSA_OPS_LOG: {level!r}; accepted: 0, 1, 2")
    if level == "0" and not folder:
        return None
    mebibytes = os.environ.get("MSA_OPS_DUMP_MIB", "1024")
    if not re.fullmatch("[0-9]+", mebibytes):
        raise ValueError(f"MSA_OPS_DUMP_MIB: {mebibytes!r}; accepted: a whole number of MiB")
    if level != "0" and not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
    return Trace(int(level), Path(folder) if folder else None, int(mebibytes) << 20)


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)
