from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from msa_ops.ops import ragged


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def by_loop(num_tokens: int, seq_lens: list[int], starts: list[int]) -> list[tuple[int, int]]:
    found = [(-1, -1)] * num_tokens
    for request, seq_len in enumerate(seq_lens):
        q_len = starts[request + 1] - starts[request]
        for i in range(q_len):
            found[starts[request] + i] = (request, max(seq_len - q_len + i, -1))
    return found


@settings(max_examples=80, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), min_size=1, max_size=7),
    padding=st.integers(0, 4),
)
def test_positions_of_any_batch(requests: list[tuple[int, int]], padding: int) -> None:
    seq_lens, q_lens = [r[0] for r in requests], [r[1] for r in requests]
    starts = [sum(q_lens[:b]) for b in range(len(q_lens) + 1)]
    num_tokens = starts[-1] + padding
    request, position = ragged.token_positions(num_tokens, ints(*seq_lens), ints(*starts))
    assert request.dtype == position.dtype == torch.int64
    assert list(zip(request.tolist(), position.tolist(), strict=True)) == by_loop(num_tokens, seq_lens, starts)


def test_uniform_batch_needs_no_starts() -> None:
    request, position = ragged.token_positions(6, ints(10, 2), None)
    assert request.tolist() == [0, 0, 0, 1, 1, 1]
    assert position.tolist() == [7, 8, 9, -1, 0, 1]
    assert ragged.query_spans(6, 2, None) == [(0, 3), (3, 6)]


def test_request_of_length_zero_sees_nothing() -> None:
    request, position = ragged.token_positions(3, ints(0, 5, -4), None)
    assert request.tolist() == [0, 1, 2]
    assert position.tolist() == [-1, 4, -1]


def test_no_requests() -> None:
    request, position = ragged.token_positions(2, ints(), ints(0))
    assert request.tolist() == position.tolist() == [-1, -1]


def test_positions_do_not_wait_for_the_device() -> None:
    """Under fake tensors any look at a value would raise."""
    with torch._subclasses.FakeTensorMode():
        request, position = ragged.token_positions(
            7, torch.empty(3, dtype=torch.int32), torch.empty(4, dtype=torch.int32)
        )
        count = ragged.num_blocks(position, 5)
    assert request.shape == position.shape == count.shape == (7,)


@pytest.mark.parametrize(("position", "count"), [(-1, 0), (0, 1), (127, 1), (128, 2), (639, 5), (640, 5), (10**6, 5)])
def test_num_blocks(position: int, count: int) -> None:
    assert ragged.num_blocks(torch.tensor([position]), 5).tolist() == [count]
    assert ragged.num_blocks(torch.tensor([-1, 129]), 0).tolist() == [0, 0]


def test_spans_stay_inside_the_tokens() -> None:
    assert ragged.query_spans(5, 3, ints(0, 2, 2, 9)) == [(0, 2), (2, 2), (2, 5)]


def test_pages_out_of_range_are_marked() -> None:
    table = ints(3, -1, 4, 2**31 - 1, 0, 77).view(1, 6)
    pages, valid = ragged.request_pages(table, 0, 5, 4)
    assert valid.tolist() == [True, False, False, False, True]
    assert pages.tolist() == [3, 0, 0, 0, 0]


def test_query_length_bucket() -> None:
    assert ragged.query_length_bucket(12, 4, None, None) == 4  # 3 each
    assert ragged.query_length_bucket(12, 4, ints(0, 1, 2, 3, 12), None) == 16  # nothing is known but T
    assert ragged.query_length_bucket(12, 4, ints(0, 1, 2, 3, 12), 8) == 8
    assert [ragged.bucket(n) for n in (0, 1, 2, 3, 4, 5, 128, 129)] == [1, 1, 2, 4, 4, 8, 128, 256]


def test_tokens_before_the_first_request_are_padding() -> None:
    lengths, starts = torch.tensor([300, 5], dtype=torch.int32), torch.tensor([2, 3, 5], dtype=torch.int32)
    request, position = ragged.token_positions(6, lengths, starts)
    assert request.tolist() == [-1, -1, 0, 1, 1, -1]
    assert position.tolist() == [-1, -1, 299, 3, 4, -1]
    assert ragged.num_blocks(position, 8).tolist() == [0, 0, 3, 1, 1, 0]
