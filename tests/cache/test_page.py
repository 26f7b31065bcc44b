from __future__ import annotations

import itertools

import pytest
import torch

from msa_ops.cache.page import CacheFormat, PageLayout, index_page, main_page
from tests.contract.oracles import cache_pages as oracle

COMBINATIONS = [
    (fmt, layout)
    for fmt, layout in itertools.product(map(str, CacheFormat), map(str, PageLayout))
    if (fmt, layout) != ("nvfp4", "packed")
]


@pytest.mark.parametrize(("fmt", "layout"), COMBINATIONS)
@pytest.mark.parametrize("heads", [1, 3])
def test_every_row_stands_at_its_address(fmt: str, layout: str, heads: int) -> None:
    page = main_page(fmt, heads, layout)
    assert page.bytes == oracle.page_bytes(fmt, heads)
    for side in "kv":
        member = page.member(side)
        assert member.row_bytes == oracle.ROW[fmt]
        for head, token in itertools.product(range(heads), (0, 1, 63, 127)):
            address = member.offset + head * member.head_stride + token * member.token_stride
            assert address == oracle.row_address(fmt, layout, heads, side, head, token)
        if fmt == "nvfp4":
            scales = page.member(f"{side}_scale")
            assert (scales.token_stride, scales.row_bytes) == (8, 8)
            for head in range(heads):
                assert scales.offset + head * scales.head_stride == oracle.scale_base(layout, heads, side, head)


@pytest.mark.parametrize(("fmt", "layout"), COMBINATIONS)
def test_members_cover_a_page_exactly_once(fmt: str, layout: str) -> None:
    page = main_page(fmt, 2, layout)
    cache = torch.zeros(1, page.bytes, dtype=torch.uint8)
    for name, _ in page.members:
        page.view(cache, name).add_(1)
    assert bool((cache == 1).all())


def test_index_pages_are_keys_then_linear_scales() -> None:
    sizes = {fmt: index_page(fmt).bytes for fmt in ("bf16", "fp8", "nvfp4")}
    assert sizes == {"bf16": 32768, "fp8": 16384, "nvfp4": 9216}
    page = index_page("nvfp4")
    assert [name for name, _ in page.members] == ["k", "k_scale"]
    assert page.member("k_scale").offset == 8192
    cache = torch.arange(9216).to(torch.uint8).unsqueeze(0)
    assert torch.equal(page.view(cache, "k_scale").flatten(), cache[0, 8192:])


@pytest.mark.parametrize("layout", ["planes", "slots"])
def test_views_follow_the_page_stride_and_start_of_a_wider_pool(layout: str) -> None:
    page = main_page("nvfp4", 2, layout)
    pool = torch.randint(0, 256, (3, page.bytes + 4096), dtype=torch.uint8)
    cache = pool[1:, 1024 : 1024 + page.bytes]
    member = page.member("v")
    row = page.view(cache, "v")[1, 1, 7]
    start = 1024 + member.offset + member.head_stride + 7 * member.token_stride
    assert torch.equal(row, pool[2, start : start + 64])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: main_page("fp4", 1), "kv_format: 'fp4'; accepted: fp32, bf16, fp8, nvfp4"),
        (lambda: main_page("fp8_e4m3", 1), "kv_format: 'fp8_e4m3'"),
        (lambda: main_page("fp8", 1, "nhd"), "kv_layout: 'nhd'; accepted: planes, slots, packed"),
        (lambda: main_page("nvfp4", 1, "packed"), "packed pages hold no scales; accepted for nvfp4: planes, slots"),
        (lambda: main_page("fp8", 0), "num_heads: 0"),
        (lambda: index_page("mxfp4"), "index_format: 'mxfp4'"),
        (lambda: main_page("fp8", 1).member("k_scale"), "member: 'k_scale'; accepted: k, v"),
        (lambda: main_page("fp8", 1).view(torch.zeros(1, 32767, dtype=torch.uint8), "k"), "pages of 32767 bytes"),
        (lambda: main_page("fp8", 1).view(torch.zeros(32768, 2, dtype=torch.uint8).t(), "k"), "strides"),
        (lambda: main_page("fp8", 1).view(torch.zeros(1, 32768), "k"), "accepted: uint8"),
    ],
)
def test_errors_name_what_is_accepted(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
