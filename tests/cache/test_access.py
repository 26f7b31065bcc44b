from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from msa_ops.cache.access import read_pages, write_tokens
from msa_ops.cache.page import main_page
from tests.cache.test_page import COMBINATIONS
from tests.contract.far_pages import sparse_pages
from tests.contract.guard import guarded
from tests.contract.oracles import cache_pages as oracle

ORDERS = ("linear", "token_quads", "swizzle_128x4")
CASES = [(fmt, layout, order) for fmt, layout in COMBINATIONS for order in (ORDERS if fmt == "nvfp4" else ("linear",))]


def random_pages(num_pages: int, size: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (num_pages, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("fmt", "layout", "order"), CASES)
@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
def test_read_of_random_bytes_equals_the_oracle(fmt: str, layout: str, order: str, rounding: str) -> None:
    """Random bytes hold every code, NaN and negative scales, subnormals and infinities; rounding is NVFP4's alone."""
    page = main_page(fmt, 2, layout)
    pool = random_pages(3, page.bytes + 512)
    cache = pool[:, 256 : 256 + page.bytes]
    ids = torch.tensor([2, 0])
    for side in "kv":
        result = read_pages(cache, page, side, ids, scale_layout=order, rounding=rounding)
        expected = [oracle.read(cache[i].numpy(), fmt, layout, 2, side, order, rounding) for i in ids]
        np.testing.assert_array_equal(result.numpy(), np.stack(expected))


@pytest.mark.parametrize(("fmt", "layout", "order"), CASES)
def test_written_bytes_equal_the_oracle_and_no_other_byte_changes(fmt: str, layout: str, order: str) -> None:
    page = main_page(fmt, 2, layout)
    pool = random_pages(3, page.bytes + 512)
    expected = pool.clone()
    slots = torch.tensor([5, 383, -1, 128, 3 * 128, 2**31 + 7, -(2**31), 127])
    values = normal(len(slots), 2, 128) * 3
    values[0, 0, :16] = 0  # an all-zero group
    values[1, 1, 16:32] *= 1e-4  # a group below the scale floor
    values[3] *= 1e4  # saturates FP8 and the scale
    values[3, 0, :3] = torch.tensor([0.25, -0.25, -0.0])
    for side in "kv":
        write_tokens(pool[:, 256 : 256 + page.bytes], page, side, slots, values, scale_layout=order)
        for slot, row in zip(slots.tolist(), values.numpy(), strict=True):
            if 0 <= slot < 3 * 128:
                target = expected[slot // 128].numpy()[256 : 256 + page.bytes]
                oracle.write(target, fmt, layout, 2, side, slot % 128, row, order)
    assert torch.equal(pool, expected)


@pytest.mark.parametrize(("fmt", "layout", "order"), CASES)
def test_unusable_slots_write_nothing(fmt: str, layout: str, order: str) -> None:
    page = main_page(fmt, 2, layout)
    slots = torch.tensor([-1, -128, 2 * 128, 2**31 - 1, -(2**40)])
    with guarded((2, page.bytes), torch.uint8) as cache:
        before = cache.clone()
        for side in "kv":
            write_tokens(cache, page, side, slots, normal(5, 2, 128), scale_layout=order)
        assert torch.equal(cache, before)
        write_tokens(cache, page, "v", torch.tensor([0, 255]), normal(2, 2, 128), scale_layout=order)  # at both ends
        assert not torch.equal(cache, before)


@pytest.mark.parametrize(("fmt", "layout", "order"), CASES)
def test_round_trip(fmt: str, layout: str, order: str) -> None:
    """Writing what was read gives the same values: every stored value is a fixed point of its format."""
    page = main_page(fmt, 2, layout)
    first, second = torch.zeros(2, 2, page.bytes, dtype=torch.uint8)
    slots, values = torch.randperm(256, generator=torch.Generator().manual_seed(1)), normal(256, 2, 128)
    write_tokens(first, page, "k", slots, values, scale_layout=order)
    write_tokens(first, page, "v", slots, values.flip(0), scale_layout=order)
    pages = torch.arange(2)
    for side, wanted in (("k", values), ("v", values.flip(0))):
        read = read_pages(first, page, side, pages, scale_layout=order)
        tokens = read.transpose(1, 2).reshape(256, 2, 128)
        error = (tokens[slots] - wanted).norm() / wanted.norm()
        assert error <= {"fp32": 0, "bf16": 0.003, "fp8": 0.04, "nvfp4": 0.12}[fmt]
        write_tokens(second, page, side, torch.arange(256), tokens, scale_layout=order)
        again = read_pages(second, page, side, pages, scale_layout=order)
        assert torch.equal(again, read)


@pytest.mark.parametrize("layout", ["planes", "slots"])
@pytest.mark.parametrize(("written", "read"), list(itertools.permutations(ORDERS, 2)))
def test_a_wrong_scale_layout_gives_other_values(layout: str, written: str, read: str) -> None:
    page = main_page("nvfp4", 2, layout)
    cache = torch.zeros(1, page.bytes, dtype=torch.uint8)
    values = normal(128, 2, 128) * torch.logspace(-1, 1, 128).unsqueeze(1).unsqueeze(2)
    write_tokens(cache, page, "v", torch.arange(128), values, scale_layout=written)
    wanted = values.transpose(0, 1)

    def error(order: str) -> float:
        found = read_pages(cache, page, "v", torch.tensor([0]), scale_layout=order)[0]
        return float((found - wanted).norm() / wanted.norm())

    assert error(written) < 0.12
    assert error(read) > 0.2


@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp8", "nvfp4"])
def test_a_wrong_page_layout_gives_other_values(fmt: str) -> None:
    layouts = [layout for found, layout in COMBINATIONS if found == fmt]
    for written, read in itertools.permutations(layouts, 2):
        page = main_page(fmt, 2, written)
        cache = torch.zeros(1, page.bytes, dtype=torch.uint8)
        for side in "kv":
            write_tokens(cache, page, side, torch.arange(128), normal(128, 2, 128, seed=ord(side)))
        zero = torch.tensor([0])
        other = read_pages(cache, main_page(fmt, 2, read), "v", zero)
        assert not torch.equal(other, read_pages(cache, page, "v", zero)), (written, read)


@pytest.mark.parametrize("fmt", ["bf16", "fp8", "nvfp4"])
def test_scale_multiplies_on_reading_and_divides_on_writing(fmt: str) -> None:
    page = main_page(fmt, 1)
    plain, scaled = torch.zeros(2, 1, page.bytes, dtype=torch.uint8)
    values, slots, scale = normal(128, 1, 128), torch.arange(128), torch.tensor(4.0)
    write_tokens(plain, page, "k", slots, values)
    write_tokens(scaled, page, "k", slots, values * 4, scale=scale)  # a power of two: no rounding differs
    assert torch.equal(plain, scaled)
    ids = torch.tensor([0])
    assert torch.equal(read_pages(scaled, page, "k", ids, scale=scale), 4 * read_pages(plain, page, "k", ids))


def test_a_scale_applies_after_the_rounding_to_e4m3() -> None:
    page = main_page("nvfp4", 1)
    cache = random_pages(1, page.bytes)
    ids, scale = torch.tensor([0]), torch.tensor(0.3)
    rounded = read_pages(cache, page, "k", ids, rounding="e4m3")
    assert not torch.equal(rounded.nan_to_num(), read_pages(cache, page, "k", ids).nan_to_num())
    scaled = read_pages(cache, page, "k", ids, scale=scale, rounding="e4m3")
    torch.testing.assert_close(scaled, rounded * 0.3, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("order", ORDERS)
def test_pages_beyond_two_and_four_gigabytes(order: str) -> None:
    """The rows of a TP4 block-outer pool: page 1,179 begins beyond 2^31 bytes, page 2,357 beyond 2^32."""
    page = main_page("nvfp4", 1)
    near, far = torch.tensor([0, 1]), torch.tensor([1179, 2399])
    values, tokens = normal(256, 1, 128), torch.arange(128)
    with sparse_pages(2400, page.bytes, 1_822_720) as cache:
        assert 1179 * cache.stride(0) > 2**31 and 2399 * cache.stride(0) > 2**32
        for side in "kv":
            slots = torch.cat([1179 * 128 + tokens, 2399 * 128 + tokens])
            write_tokens(cache, page, side, slots, values, scale_layout=order)
            assert not cache[near].any()
            write_tokens(cache, page, side, torch.cat([tokens, 128 + tokens]), values, scale_layout=order)
            found = [read_pages(cache, page, side, ids, scale_layout=order) for ids in (near, far)]
            assert torch.equal(*found)
            assert bool(found[0].any())
            cache[near] = 0


def test_fp8_keeps_nan_and_saturates() -> None:
    page = main_page("fp8", 1)
    cache = torch.zeros(1, page.bytes, dtype=torch.uint8)
    values = torch.zeros(1, 1, 128)
    values[0, 0, :4] = torch.tensor([torch.nan, 1e9, -torch.inf, 464.0])
    write_tokens(cache, page, "k", torch.tensor([0]), values)
    assert cache[0, :4].tolist() == [0x7F, 0x7E, 0xFE, 0x7E]


def test_no_tokens_and_no_pages() -> None:
    page = main_page("nvfp4", 2)
    cache = torch.zeros(0, page.bytes, dtype=torch.uint8)
    write_tokens(cache, page, "k", torch.tensor([0, -1]), normal(2, 2, 128))
    assert read_pages(cache, page, "k", torch.empty(0, dtype=torch.int64)).shape == (0, 2, 128, 128)
