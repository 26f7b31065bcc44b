"""What the facts of a call can be at all, whichever backend takes it: `explain` refuses others, as the op would."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import torch

from msa_ops.cache.page import CacheFormat, PageLayout
from msa_ops.formats.e4m3 import ROUNDINGS
from msa_ops.formats.scale_layout import ScaleLayout
from msa_ops.ops import checks


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; integers of them multiples of `multiple`."""

    low: float = 0
    high: float = math.inf
    multiple: int = 1


def dtypes(*accepted: torch.dtype) -> tuple[str, ...]:
    """As facts name them."""
    return tuple(str(dtype).removeprefix("torch.") for dtype in accepted)


FLOATS = dtypes(*checks.FLOATS)
E4M3 = dtypes(torch.float8_e4m3fn)
AT_LEAST_1 = Range(1)
_COMMON: Mapping[str, Sequence[str] | Range] = {
    "dtype": FLOATS,
    "q_dtype": (*FLOATS, *E4M3),
    "kv_format": [fmt.value for fmt in CacheFormat],
    "index_format": [fmt.value for fmt in CacheFormat],
    "kv_layout": [layout.value for layout in PageLayout],
    "k_scale_layout": [layout.value for layout in ScaleLayout],
    "v_scale_layout": [layout.value for layout in ScaleLayout],
    "scale_layout": [layout.value for layout in ScaleLayout],
    "rounding": ROUNDINGS,
    "topk_layout": ("THK", "HTK"),
    "topk": Range(1, 64),
    "num_kv_heads": AT_LEAST_1,
    "num_experts": AT_LEAST_1,
    "top_k": AT_LEAST_1,
    "intermediate": AT_LEAST_1,
}
"""By the name of the fact. Other numbers are 0 or more."""


def accepted(
    base: Mapping[str, Sequence[str] | Range] = MappingProxyType({}), **more: Sequence[str] | Range
) -> Mapping[str, Sequence[str] | Range]:
    """A class's table: by the name of the fact what it can be."""
    return MappingProxyType({**base, **more})


class Checked:
    """Facts that know their values. A class names those that differ from the common ones, or that it alone has."""

    ACCEPTED = accepted()

    def check(self) -> None:
        """Raises ValueError naming the fact and what is accepted."""
        for field in fields(self):  # type: ignore[arg-type]
            name, value = field.name, getattr(self, field.name)
            accepted = self.ACCEPTED.get(name, _COMMON.get(name, Range()))
            if isinstance(field.default, bool):
                checks.choice(name, value, (True, False))
            elif not isinstance(accepted, Range):
                checks.choice(name, value, accepted)
            elif isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{name}: {value!r}; accepted: a number")
            else:
                checks.between(name, value, accepted.low, accepted.high)
                if isinstance(value, int):
                    checks.multiple(name, value, accepted.multiple)
