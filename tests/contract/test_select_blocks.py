"""The choice of blocks is one total order: the same ids for every backend, bit by bit."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from msa_ops.ops.select_blocks import VARIANTS, Args, generate
from tests.contract.guard import guarded
from tests.contract.oracles.block_selection import choose_all
from tests.contract.target import Target
from tests.contract.workspace import workspace_bytes

OP = "select_blocks"
INF, NAN = float("inf"), float("nan")


def expected_ids(args: Args) -> Tensor:
    """What plain Python chooses, in the layout asked for."""
    ids = choose_all(args.scores.numpy(), args.num_blocks.tolist(), args.topk, args.init_blocks, args.local_blocks)
    return ids if args.topk_layout == "THK" else ids.transpose(0, 1).contiguous()


def judge(target: Target, args: Args) -> Tensor:
    (ids,) = target.run(args)
    expected = expected_ids(args)
    wrong = (ids != expected).nonzero()
    assert ids.shape == expected.shape
    assert not len(wrong), f"first difference at {wrong[0].tolist()}"
    return ids


def of_rows(rows: list[list[float]], counts: list[int] | None = None, **options: object) -> Args:
    """One head, a token a row."""
    scores = torch.tensor(rows, dtype=torch.float32).unsqueeze(1)
    num_blocks = torch.tensor(counts if counts is not None else [len(row) for row in rows], dtype=torch.int32)
    return Args(scores, num_blocks, **options)


@pytest.mark.parametrize("topk", [1, 7, 16, 32, 64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant(target: Target, variant: str, topk: int) -> None:
    judge(target, generate(31, variant=variant, topk=topk, max_blocks=90, tokens=8))


@pytest.mark.parametrize("topk", [1, 2, 7, 16])
def test_forced_blocks(target: Target, topk: int) -> None:
    for init_blocks, local_blocks in itertools.product([0, 1, 2, 5, 70], repeat=2):
        for variant in ("plain", "special", "counts"):
            args = generate(
                32,
                variant=variant,
                topk=topk,
                init_blocks=init_blocks,
                local_blocks=local_blocks,
                tokens=8,
                num_heads=2,
            )
            judge(target, args)


def test_forced_blocks_beyond_topk(target: Target) -> None:
    """Init blocks first, ascending; then local blocks, the newest first."""
    row = [[9.0] * 10]
    for topk, init_blocks, local_blocks, ids in (
        (3, 2, 2, [0, 1, 9]),
        (3, 1, 4, [0, 8, 9]),
        (2, 5, 5, [0, 1]),
        (2, 0, 5, [8, 9]),
        (1, 0, 3, [9]),
        (1, 1, 1, [0]),
    ):
        args = of_rows(row, topk=topk, init_blocks=init_blocks, local_blocks=local_blocks)
        assert target.run(args)[0].tolist() == [[ids]]


def test_forced_blocks_win_against_any_score(target: Target) -> None:
    """Also when they score worst, and against infinity (flashinfer forces with finite values, which inf would beat)."""
    scores = [-INF, *[INF] * 8, NAN]
    assert target.run(of_rows([scores], topk=3, init_blocks=1, local_blocks=1))[0].tolist() == [[[0, 1, 9]]]


def test_short_rows_take_everything(target: Target) -> None:
    """n <= topk gives 0 to n - 1 whatever the scores (vllm-ascend#13177, TensorRT-LLM#18154)."""
    for value in (NAN, -INF, INF, 0.0):
        counts = list(range(18))
        args = of_rows([[value] * 20 for _ in counts], counts, topk=17, local_blocks=0)
        for n, row in zip(counts, target.run(args)[0][:, 0].tolist(), strict=True):
            assert row == [*range(n), *[-1] * (17 - n)]


def test_nothing_behind_the_count_is_chosen(target: Target) -> None:
    """A row keeps min(topk, n) ids below n, even if blocks behind score higher (flashinfer#4123)."""
    args = of_rows([[-INF] * 5 + [1e30, INF, NAN]], [5], topk=4, local_blocks=0)
    assert target.run(args)[0].tolist() == [[[0, 1, 2, 3]]]


def test_counts_beyond_the_table_are_clamped(target: Target) -> None:
    """flashinfer#4324: counts are a token's own, and clamped before anything is read."""
    args = of_rows([[1.0, 3.0, 2.0]] * 5, [0, -5, 4, 2**31 - 1, -(2**31)], topk=2, local_blocks=0)
    assert target.run(args)[0][:, 0].tolist() == [[-1, -1], [-1, -1], [1, 2], [1, 2], [-1, -1]]


@pytest.mark.parametrize(
    ("scores", "ids"),
    [
        ([0.0, -0.0, 0.0, -0.0], [0, 1]),
        ([-0.0, 0.0, -0.0, 0.0], [0, 1]),
        ([-1.0, -0.0, 0.0, -2.0], [1, 2]),
        ([NAN, -INF, NAN, -3.0], [1, 3]),
        ([NAN, NAN, NAN, -INF], [0, 3]),
        ([INF, NAN, INF, INF], [0, 2]),
        ([1.0, 1.0000001192092896, 1.0, 1.0], [0, 1]),
        ([1e-45, 0.0, -1e-45, 0.0], [0, 1]),
        ([-1e-45, -0.0, -1e-45, 1e-45], [1, 3]),
    ],
)
def test_order_of_special_values(target: Target, scores: list[float], ids: list[int]) -> None:
    """ATOM#2229: zeros of both signs tie. One ulp and subnormals count."""
    assert target.run(of_rows([scores], topk=2, local_blocks=0))[0].tolist() == [[ids]]


def test_nan_of_every_sign_and_payload(target: Target) -> None:
    """Ids stay unique and in range for any pattern of NaN (DeepGEMM#392, vllm#49896)."""
    bits = torch.tensor([0x7FC00000, -0x400000, 0x7F800001, -0x7FFFFF, 0x7FFFFFFF, -1], dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    scores = bits[torch.randint(6, (7, 3, 50), generator=generator)].to(torch.int32).view(torch.float32)
    assert bool(scores.isnan().all())
    scores = torch.where(torch.rand(scores.shape, generator=generator) < 0.2, -torch.inf, scores)
    judge(target, Args(scores, torch.full((7,), 50, dtype=torch.int32), topk=20))


@pytest.mark.parametrize("size", [512, 513, 1600])
def test_clustered_scores(target: Target, size: int) -> None:
    """Many scores that share their high bits, all around the threshold (MSA 5ae841ac)."""
    generator = torch.Generator().manual_seed(size)
    bits = 0x42000000 + torch.randint(4, (2, 2, size), generator=generator, dtype=torch.int32)
    bits[..., :3] += 0x1000
    judge(target, Args(bits.view(torch.float32), torch.full((2,), size, dtype=torch.int32)))
    equal = torch.full((1, 1, size), 7.0)
    (ids,) = target.run(Args(equal, torch.tensor([size], dtype=torch.int32)))
    assert ids[0, 0].tolist() == [*range(15), size - 1]


@pytest.mark.parametrize("max_blocks", [1, 16, 17, 63, 4096, 8192, 8400, 16384])
def test_widths(target: Target, max_blocks: int) -> None:
    """sglang#36560: a million tokens and more."""
    for topk in (16, 64):
        args = generate(33, max_blocks=max_blocks, tokens=2, num_heads=2, topk=topk)
        args.num_blocks[0] = max_blocks
        judge(target, args)
    last = torch.full((1, 1, max_blocks), -1.0)
    last[..., -1] = 1.0
    one = Args(last, torch.tensor([max_blocks], dtype=torch.int32), topk=1, local_blocks=0)
    assert target.run(one)[0].item() == max_blocks - 1


@pytest.mark.parametrize("size", [1, 4, 16])
def test_tokens_equal_to_heads_in_both_layouts(target: Target, size: int) -> None:
    """A shape cannot tell the layouts apart when T = H (vllm#48603): the argument must."""
    args = generate(34, tokens=size, num_heads=size, max_blocks=60)
    thk = judge(target, args)
    htk = judge(target, dataclasses.replace(args, topk_layout="HTK"))
    assert thk.shape == htk.shape == (size, size, 16)
    assert torch.equal(thk, htk.transpose(0, 1))
    assert size == 1 or not torch.equal(thk, htk)


def test_place_in_the_batch_does_not_matter(target: Target) -> None:
    args = generate(35, variant="special", tokens=9, max_blocks=70)
    (ids,) = target.run(args)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    (shuffled,) = target.run(dataclasses.replace(args, scores=args.scores[order], num_blocks=args.num_blocks[order]))
    assert torch.equal(shuffled, ids[order])
    for token in range(9):
        part = slice(token, token + 1)
        (alone,) = target.run(dataclasses.replace(args, scores=args.scores[part], num_blocks=args.num_blocks[part]))
        assert torch.equal(alone, ids[part])


def test_what_lies_behind_the_count_does_not_matter(target: Target) -> None:
    args = generate(36, max_blocks=70)
    (ids,) = target.run(args)
    behind = torch.arange(70) >= args.num_blocks.view(-1, 1, 1)
    for value in (NAN, INF, 1e30, -0.0):
        assert torch.equal(target.run(dataclasses.replace(args, scores=args.scores.masked_fill(behind, value)))[0], ids)


def test_runs_repeat(target: Target) -> None:
    """1Cat-vllm#394."""
    args = generate(37, variant="ties", max_blocks=200)
    (ids,) = target.run(args)
    for _ in range(20):
        assert torch.equal(target.run(args)[0], ids)


@pytest.mark.parametrize("topk_layout", ["THK", "HTK"])
def test_nothing_but_the_result_is_written(target: Target, topk_layout: str) -> None:
    args = generate(38, variant="special", tokens=5, topk=7, topk_layout=topk_layout)
    expected = expected_ids(args)
    with (
        guarded(tuple(args.scores.shape), torch.float32) as scores,
        guarded((workspace_bytes(target, args),), torch.uint8) as workspace,
        guarded(tuple(expected.shape), torch.int32) as out,
    ):
        scores.copy_(args.scores)
        target.run(dataclasses.replace(args, scores=scores, workspace=workspace), (out,))
        assert torch.equal(out, expected)
        assert torch.equal(scores.view(torch.int32), args.scores.view(torch.int32))


def test_no_tokens_and_no_blocks(target: Target) -> None:
    assert target.run(generate(39, tokens=0))[0].shape == (0, 4, 16)
    empty = Args(torch.empty(3, 2, 0), torch.tensor([0, 1, -1], dtype=torch.int32))
    assert bool((target.run(empty)[0] == -1).all())


VALUES = st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 3.4e38, -3.4e38, 1e-45]) | st.floats(width=32)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_row(target: Target, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 24))
    row = data.draw(st.lists(VALUES, min_size=width, max_size=width))
    count = data.draw(st.integers(-1, width + 1))
    args = of_rows(
        [row],
        [count],
        topk=data.draw(st.integers(1, 64)),
        init_blocks=data.draw(st.integers(0, 3)),
        local_blocks=data.draw(st.integers(0, 3)),
    )
    judge(target, args)
