from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import msa_ops
from msa_ops.ops import select_blocks
from msa_ops.ops.select_blocks import Facts, cost, facts, generate, ordered, reference


def call(args: object, **changes: Any) -> torch.Tensor:
    record = dataclasses.replace(args, **changes)
    return msa_ops.select_blocks(**{name: getattr(record, name) for name in record.__dataclass_fields__})


def test_order_of_scores_is_total() -> None:
    """Every pair of interesting floats compares as the numbers do; NaN of any sign is lowest."""
    inf, tiny, big = torch.inf, 2.0**-149, torch.finfo(torch.float32).max
    numbers = torch.tensor([-inf, -big, -1.0, -(2.0**-126), -tiny, 0.0, tiny, 2.0**-126, 1.0, 1.0000001, big, inf])
    keys = ordered(numbers)
    assert bool((keys.diff() > 0).all())
    assert ordered(torch.tensor([-0.0])) == ordered(torch.tensor([0.0]))
    nans = torch.tensor([0x7FC00000, 0x7F800001, -1, -0x400000], dtype=torch.int32).view(torch.float32)
    assert bool((ordered(nans) < keys[0]).all()) and len(ordered(nans).unique()) == 1
    bits = torch.randint(-(2**31), 2**31 - 1, (4096,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    values = bits.view(torch.float32)
    values = values[~values.isnan()].sort().values
    assert torch.equal(ordered(values).diff() > 0, values.diff() > 0)


def test_agrees_with_torch_topk_without_ties() -> None:
    args = generate(1, max_blocks=200, tokens=20, local_blocks=0)
    args.num_blocks.fill_(200)
    args.scores.copy_(torch.randn(args.scores.shape, generator=torch.Generator().manual_seed(0)))
    expected = args.scores.topk(16, dim=-1).indices.sort(dim=-1).values
    assert torch.equal(reference(args)[0].long(), expected)


def test_reference_does_not_depend_on_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    args = generate(2, tokens=11, variant="special")
    (expected,) = reference(args)
    monkeypatch.setattr(select_blocks, "ELEMENTS", 500)
    assert torch.equal(reference(args)[0], expected)


BAD = [
    ({"scores": torch.zeros(6, 4, 40, dtype=torch.bfloat16)}, "scores"),
    ({"scores": torch.zeros(6, 160)}, "scores"),
    ({"scores": torch.zeros(6, 40, 4).transpose(1, 2)}, "scores"),
    ({"num_blocks": torch.zeros(6, dtype=torch.int64)}, "num_blocks"),
    ({"num_blocks": torch.zeros(4, dtype=torch.int32)}, "num_blocks"),
    ({"num_blocks": torch.tensor(3, dtype=torch.int32)}, "num_blocks"),
    ({"topk": 0}, "topk"),
    ({"topk": 65}, "topk"),
    ({"init_blocks": -1}, "init_blocks"),
    ({"local_blocks": -1}, "local_blocks"),
    ({"topk_layout": "KHT"}, "topk_layout"),
    ({"topk_layout": "thk"}, "topk_layout"),
    ({"workspace": torch.zeros(4, dtype=torch.int32)}, "workspace"),
]


@pytest.mark.parametrize(("changes", "name"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_arguments_are_named(changes: dict[str, Any], name: str) -> None:
    args = generate(3)
    call(args)
    with pytest.raises(ValueError, match=rf"^{name}: .*accepted: "):
        call(args, **changes)


def test_facts() -> None:
    assert facts(generate(4, max_blocks=1000)) == Facts()
    assert facts(generate(4, topk=7, init_blocks=1, local_blocks=2, topk_layout="HTK", variant="strided")) == Facts(
        4, 7, 1, 2, "HTK", 64, False
    )


def test_cost() -> None:
    args = generate(5, tokens=3, num_heads=2, topk=7, max_blocks=10)
    args.num_blocks.copy_(torch.tensor([4, 99, -1]))
    found = cost(args)
    assert (found.bytes_read, found.bytes_written) == (4 * (14 * 2 + 3), 4 * 3 * 2 * 7)


def test_rows_of_more_than_a_million_blocks_keep_their_order() -> None:
    """Neighbouring scores, the better one far behind: a block number must not reach into the score."""
    width = (1 << 20) + 300
    scores, count = torch.zeros(1, 1, width), torch.full((1,), width, dtype=torch.int32)
    scores[0, 0, -1] = torch.nextafter(torch.tensor(0.0), torch.tensor(1.0))
    ids = msa_ops.select_blocks(scores, count, topk=4, local_blocks=0)
    assert ids.flatten().tolist() == [0, 1, 2, width - 1]
