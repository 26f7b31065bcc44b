from __future__ import annotations

import pytest
import torch

from msa_ops.bench.outline import outline
from msa_ops.bench.workload import load
from msa_ops.registry import STORE

SMALL = load("cpu_smoke").cases


@pytest.mark.parametrize("limit", [0, 1 << 12, 1 << 40])
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_cost_is_that_of_real_arguments(case, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("msa_ops.bench.outline.LIMITS", (limit, 1 << 16, 1 << 40))
    spec = STORE.op(case.op)
    found = outline(spec, case.dims)
    args = spec.generate(0, **case.dims)
    if case.op == "select_blocks" and limit < 1 << 40:
        # Its row lengths are drawn after the scores, which are not drawn here: the same distribution, other values.
        assert found.cost.bytes_read == pytest.approx(spec.cost(args).bytes_read, rel=0.5)
    else:
        assert found.cost == spec.cost(args)
    tensors = [*(getattr(args, name) for name in args.__dataclass_fields__), *spec.meta(args)]
    assert found.call_bytes == sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def test_a_cache_of_many_gigabytes_takes_no_memory() -> None:
    """Index keys of 64 requests of a million tokens: 4.8 GB, with ids above 2^31 bytes."""
    found = outline(STORE.op("indexer"), {"batch": 64, "seq_len": 1 << 20, "q_len": 1})
    assert found.call_bytes > 64 * (1 << 20) * 72
    assert found.precision == "fp8"


def test_bad_dimensions_raise_as_they_do_in_earnest() -> None:
    with pytest.raises(ValueError, match="index_format"):
        outline(STORE.op("indexer"), {"index_format": "nvfp5"})
