"""qk_norm_rope_insert on every backend: cache bytes against brute force, slots, layouts, roundings, isolation."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops.cache.page import index_page, main_page
from msa_ops.ops.qk_norm_rope_insert import VARIANTS, Args, generate
from tests.contract.far_pages import sparse_pages
from tests.contract.guard import guarded
from tests.contract.oracles.insert import Interval, array, assert_call, assert_rounding, rounded
from tests.contract.oracles.minimax_m3 import Layer
from tests.contract.target import Target

OP = "qk_norm_rope_insert"
SCALE_LAYOUTS = ("linear", "token_quads", "swizzle_128x4")
PAGES = [
    *(("nvfp4", layout, k, v) for layout, k, v in itertools.product(("planes", "slots"), SCALE_LAYOUTS, SCALE_LAYOUTS)),
    *((fmt, layout, "linear", "linear") for fmt in ("fp32", "bf16", "fp8") for layout in ("planes", "slots", "packed")),
]


def with_copies(a: Args) -> Args:
    """The same call on copies of the caches."""
    index = None if a.index_cache is None else a.index_cache.clone()
    return dataclasses.replace(a, kv_cache=a.kv_cache.clone(), index_cache=index)


def rows_of(a: Args) -> Interval:
    value = array(a.qkv)
    return Interval(value, np.zeros_like(value))


def run_checked(target: Target, a: Args, skip: tuple[int, ...] = ()) -> tuple[Tensor, ...]:
    before = with_copies(a)
    results = target.run(a)
    assert_call(a, rows_of(a), a.qkv.dtype, (before.kv_cache, before.index_cache), results, skip)
    return results


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.equal(bits(a), bits(b))


@pytest.mark.parametrize("tokens", [0, 1, 5, 128, 129])
@pytest.mark.parametrize(("heads", "kv_heads", "index_heads"), [(64, 4, 4), (32, 2, 2), (16, 1, 1)])
def test_geometries(target: Target, tokens: int, heads: int, kv_heads: int, index_heads: int) -> None:
    """All tensor-parallel geometries of M3.1, within a page and across its border."""
    run_checked(
        target,
        generate(
            tokens, batch=1, q_len=tokens, seq_len=200, num_heads=heads, num_kv_heads=kv_heads,
            num_index_heads=index_heads,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("fmt", "layout", "k_order", "v_order"), PAGES)
def test_formats_and_layouts(target: Target, fmt: str, layout: str, k_order: str, v_order: str) -> None:
    index_format = ("fp32", "bf16", "fp8", "nvfp4")[PAGES.index((fmt, layout, k_order, v_order)) % 4]
    a = generate(
        1, kv_format=fmt, kv_layout=layout, k_scale_layout=k_order, v_scale_layout=v_order, index_format=index_format,
        num_kv_heads=3, num_heads=6,
    )  # fmt: skip
    run_checked(target, a)


@pytest.mark.parametrize("other", ["token_quads", "swizzle_128x4"])
def test_scale_layouts_are_not_one_another(target: Target, other: str) -> None:
    """A writer that ignores the layout leaves bytes that the check refuses (vllm#50084)."""
    a = generate(2, v_scale_layout="linear")
    before = with_copies(a)
    results = target.run(a)
    wrong = dataclasses.replace(a, v_scale_layout=other)
    with pytest.raises(AssertionError):
        assert_call(wrong, rows_of(a), a.qkv.dtype, (before.kv_cache, before.index_cache), results)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("q_dtype", [None, "float8_e4m3fn"])
@pytest.mark.parametrize("float_weights", [True, False])
@pytest.mark.parametrize("index_dtype", ["int64", "int32"])
def test_dtypes(target: Target, dtype: str, q_dtype: str | None, float_weights: bool, index_dtype: str) -> None:
    a = generate(
        3, dtype=dtype, q_dtype=q_dtype, weight_dtype="float32" if float_weights else dtype, index_dtype=index_dtype
    )
    run_checked(target, a)


@pytest.mark.parametrize("rotary_dim", [2, 32, 64, 90, 128])
@pytest.mark.parametrize("gemma", [True, False])
def test_rotary_dims_and_weights(target: Target, rotary_dim: int, gemma: bool) -> None:
    run_checked(target, generate(4, rotary_dim=rotary_dim, gemma=gemma, eps=1e-2, dtype="float32", kv_format="fp32"))


@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(target: Target, variant: str, fmt: str) -> None:
    """Skipped slots, positions outside the table, extreme rows, strides, a shared pool, no index, all scales."""
    a = generate(5, variant=variant, kv_format=fmt, index_format=fmt)
    run_checked(target, a, skip=(0,) if variant in ("nan_row", "inf_row") else ())


@pytest.mark.parametrize("fmt", ["bf16", "fp8", "nvfp4"])
def test_scales_are_applied_where_they_belong(target: Target, fmt: str) -> None:
    """Each scale changes its own member and nothing else; a swap of any two is seen (vllm#55673, sglang#18904)."""
    page = main_page(fmt, 2)
    views = {"k_scale": ("kv_cache", "k"), "v_scale": ("kv_cache", "v"), "index_k_scale": ("index_cache", "k")}

    def members(scales: dict[str, Tensor]) -> dict[str, Tensor]:
        a = dataclasses.replace(generate(6, kv_format=fmt, index_format=fmt), **scales)
        target.run(a)
        pages = {"kv_cache": page, "index_cache": index_page(fmt)}
        found = {}
        for name, (cache, member) in views.items():
            names = [member, f"{member}_scale"] if fmt == "nvfp4" else [member]
            found[name] = torch.cat([pages[cache].view(getattr(a, cache), n).flatten() for n in names])
        return found

    plain = members({})
    for name in views:
        changed = members({name: torch.tensor(0.6)})
        for other in views:
            assert torch.equal(plain[other], changed[other]) == (other != name), (name, other)


def test_fp8_saturates(target: Target) -> None:
    """Values beyond 448 become 448, not NaN (ATOM#2205)."""
    a = generate(7, kv_format="fp8", dtype="float32", q_dtype="float8_e4m3fn")
    a.qkv[:, (8 + 2) * 128 : (8 + 4) * 128] = torch.tensor([1e4, -1e4, 464.0, 449.0] * 64)
    a.q_weight.fill_(1e4)
    q, _ = run_checked(target, a)
    assert not q.float().isnan().any()
    assert q.float().abs().max() == 448
    v = main_page("fp8", 2).view(a.kv_cache, "v")[a.slot_mapping // 128, :, a.slot_mapping % 128]
    assert v.view(torch.float8_e4m3fn).float().abs().eq(448).all()


def test_zero_groups_get_the_smallest_scale(target: Target) -> None:
    """Scale byte 0x01 and codes 0 for all-zero groups, in K, V and the index key; no 0 / 0."""
    a = generate(8)
    a.qkv.zero_()
    q, index_q = run_checked(target, a)
    assert not q.any() and not index_q.any()
    for cache, page, names in ((a.kv_cache, main_page("nvfp4", 2), "kv"), (a.index_cache, index_page("nvfp4"), "k")):
        for name in names:
            codes = page.view(cache, name)[a.slot_mapping // 128, :, a.slot_mapping % 128]
            scales = page.view(cache, f"{name}_scale")[a.slot_mapping // 128, :, a.slot_mapping % 128]
            assert not codes.any() and scales.eq(1).all()


@pytest.mark.parametrize("fmt", ["fp8", "bf16", "nvfp4"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_row_stays_alone(target: Target, fmt: str, poison: float) -> None:
    """NaN and infinities of one row change that row's outputs and slot alone, bit for bit."""
    good = generate(9, kv_format=fmt, index_format=fmt)
    bad = dataclasses.replace(with_copies(good), qkv=good.qkv.clone())
    bad.qkv[4, ::3] = poison
    good_results, bad_results = target.run(good), target.run(bad)
    rest = torch.arange(len(good.qkv)) != 4
    assert_same([r[rest] for r in good_results], [r[rest] for r in bad_results])
    slot = int(good.slot_mapping[4])
    for name, page in (("kv_cache", main_page(fmt, 2)), ("index_cache", index_page(fmt))):
        for member, _ in page.members:
            one, other = (page.view(getattr(a, name), member).clone() for a in (good, bad))
            for view in (one, other):
                view[slot // 128, :, slot % 128] = 0
            assert torch.equal(one, other), (name, member)


def test_nan_bytes(target: Target) -> None:
    """FP8 keeps NaN; NVFP4 writes code 0 for it and a finite scale."""
    a = generate(10, variant="nan_row", kv_format="fp8", index_format="nvfp4")
    target.run(a)
    page, slot = main_page("fp8", 2), int(a.slot_mapping[0])
    for member in "kv":
        row = page.view(a.kv_cache, member)[slot // 128, :, slot % 128]
        assert (row & 0x7F).eq(0x7F).all()
    index = index_page("nvfp4")
    assert not index.view(a.index_cache, "k")[slot // 128, 0, slot % 128].any()
    assert index.view(a.index_cache, "k_scale")[slot // 128, 0, slot % 128].eq(1).all()


@pytest.mark.parametrize("slot", [-1, -128, -(2**63), "end", 2**31, 2**63 - 1])
def test_slots_outside_write_nothing(target: Target, slot: int | str) -> None:
    """All slots outside: both caches keep every bit, the queries are those of a call with slots (TRT-LLM#18673)."""
    a = generate(11)
    inside = with_copies(a)
    before = with_copies(a)
    a.slot_mapping = torch.full_like(a.slot_mapping, a.kv_cache.shape[0] * 128 if slot == "end" else slot)
    assert_same(target.run(a), target.run(inside))
    assert torch.equal(a.kv_cache, before.kv_cache) and torch.equal(a.index_cache, before.index_cache)


def test_first_and_last_slot_between_guards(target: Target) -> None:
    """The first and the last token of a cache, with guard bytes around the memory and between the pages."""
    main, index = main_page("nvfp4", 2), index_page("nvfp4")
    a = generate(12, batch=2, q_len=1)
    with guarded((3, main.bytes + 64), torch.uint8) as kv, guarded((3, index.bytes + 16), torch.uint8) as keys:
        a.kv_cache, a.index_cache = kv[:, : main.bytes], keys[:, : index.bytes]
        a.slot_mapping = torch.tensor([0, 3 * 128 - 1])
        run_checked(target, a)
        assert kv[:, main.bytes :].eq(0xC3).all() and keys[:, index.bytes :].eq(0xC3).all()


def pool_call(pool: Tensor, a: Args) -> Args:
    """The call on columns of a pool: neighbour | kv | neighbour | index | neighbour, 64 bytes each."""
    main, index = main_page(a.kv_format, a.num_kv_heads).bytes, index_page(a.index_format).bytes
    kv = pool[:, 64 : 64 + main]
    return dataclasses.replace(a, kv_cache=kv, index_cache=pool[:, 128 + main : 128 + main + index])


def test_columns_of_one_pool(target: Target) -> None:
    """Both caches are columns of a block-outer pool: the other columns keep every bit."""
    a = generate(13)
    main, index = a.kv_cache.shape[1], a.index_cache.shape[1]
    with guarded((len(a.kv_cache), main + index + 192), torch.uint8) as pool:
        run_checked(target, pool_call(pool, a))
        for first in (0, 64 + main, 128 + main + index):
            assert pool[:, first : first + 64].eq(0xC3).all()


@pytest.mark.parametrize("order", ["index_first", "main_first"])
def test_pool_through_torch_compile(order: str) -> None:
    """One graph input sliced twice, and two aliased graph inputs, both mutated by the op (pytorch#139628)."""
    a = generate(14)
    main, index = a.kv_cache.shape[1], a.index_cache.shape[1]
    first = torch.randint(0, 256, (len(a.kv_cache), main + index + 192), dtype=torch.uint8)
    at = 128 + index if order == "index_first" else 64
    key_at = 64 if order == "index_first" else 128 + main
    values = {n: getattr(a, n) for n in a.__dataclass_fields__ if n not in ("kv_cache", "index_cache")}

    def on_views(kv: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        q, index_q = msa_ops.qk_norm_rope_insert(kv_cache=kv, index_cache=keys, **values)
        return q * 2, index_q

    def on_pool(pool: Tensor) -> tuple[Tensor, Tensor]:
        return on_views(pool[:, at : at + main], pool[:, key_at : key_at + index])

    eager = first.clone()
    expected = on_pool(eager)
    assert not torch.equal(eager, first)
    compiled = first.clone()
    results = torch.compile(on_pool, backend="aot_eager", fullgraph=True)(compiled)
    assert torch.equal(compiled, eager)
    assert_same(results, expected)
    aliased = first.clone()
    views = aliased[:, at : at + main], aliased[:, key_at : key_at + index]
    results = torch.compile(on_views, backend="aot_eager", fullgraph=True)(*views)
    assert torch.equal(aliased, eager)
    assert_same(results, expected)


@pytest.mark.parametrize("fmt", ["nvfp4", "fp8"])
def test_far_pages(target: Target, fmt: str) -> None:
    """Pages around and beyond 2^31 bytes hold what near pages hold (vllm#47671): a block-outer row of 1.8 MB."""
    stride, num_pages = 1_822_720, 1_400
    main, index = main_page(fmt, 1), index_page("nvfp4")
    border = 2**31 // stride
    slots = torch.tensor([3, 128 * border + 127, 128 * (border + 1), 128 * num_pages - 1])
    near = generate(15, batch=4, q_len=1, num_heads=2, num_kv_heads=1, num_index_heads=1, kv_format=fmt)
    near.kv_cache, near.index_cache = near.kv_cache.zero_(), near.index_cache.zero_()
    near.slot_mapping = slots % 128 + 128 * torch.arange(4)
    with sparse_pages(num_pages, main.bytes + index.bytes, stride) as pool:
        far = dataclasses.replace(
            near, kv_cache=pool[:, : main.bytes], index_cache=pool[:, main.bytes :], slot_mapping=slots
        )
        assert_same(target.run(far), run_checked(target, near))
        for number, page in enumerate((slots // 128).tolist()):
            assert torch.equal(far.kv_cache[page], near.kv_cache[number])
            assert torch.equal(far.index_cache[page], near.index_cache[number])
        for page in (1, border - 1, border + 2, num_pages - 2):
            assert not pool[page].any()


def test_one_by_one_equals_all_at_once(target: Target) -> None:
    """Verify of n tokens inserts what n decode steps insert, bit for bit."""
    a = generate(16, batch=2, q_len=5)
    single = with_copies(a)
    together = target.run(a)
    pieces = []
    for t in range(len(a.qkv)):
        part = {name: getattr(single, name)[t : t + 1] for name in ("qkv", "positions", "slot_mapping")}
        pieces.append(target.run(dataclasses.replace(single, **part)))
    assert_same(together, [torch.cat(parts) for parts in zip(*pieces, strict=True)])
    assert_same((a.kv_cache, a.index_cache), (single.kv_cache, single.index_cache))


def test_order_of_tokens_does_not_matter(target: Target) -> None:
    a = generate(17, batch=2, q_len=70)
    order = torch.randperm(140, generator=torch.Generator().manual_seed(0))
    moved = {name: getattr(a, name)[order] for name in ("qkv", "positions", "slot_mapping")}
    shuffled = dataclasses.replace(with_copies(a), **moved)
    assert_same([r[order] for r in target.run(a)], target.run(shuffled))
    assert_same((a.kv_cache, a.index_cache), (shuffled.kv_cache, shuffled.index_cache))


def test_repeats_give_the_same_bits(target: Target) -> None:
    a = generate(18, batch=4, q_len=33)
    first = target.run(a)
    caches = with_copies(a)
    for _ in range(5):
        assert_same(target.run(a), first)
    assert_same((a.kv_cache, a.index_cache), (caches.kv_cache, caches.index_cache))


def test_old_bytes_do_not_matter(target: Target) -> None:
    """Every byte of a written token is replaced, whatever was there (0xFF: NaN codes and scales)."""
    a = generate(19)
    poisoned = with_copies(a)
    poisoned.kv_cache.fill_(0xFF)
    poisoned.index_cache.fill_(0xFF)
    assert_same(run_checked(target, poisoned), run_checked(target, a))


def test_positions_beyond_the_table_take_its_ends(target: Target) -> None:
    a = generate(20, batch=1, q_len=4, seq_len=130)
    a.positions = torch.tensor([-1, -(2**40), 130, 2**40])
    ends = dataclasses.replace(with_copies(a), positions=torch.tensor([0, 0, 129, 129]))
    assert_same(target.run(a), target.run(ends))
    assert_same((a.kv_cache, a.index_cache), (ends.kv_cache, ends.index_cache))


def test_out_keeps_to_its_memory(target: Target) -> None:
    a = generate(21, q_dtype="float8_e4m3fn")
    expected = target.run(with_copies(a))
    with (
        guarded(tuple(expected[0].shape), torch.uint8) as q,
        guarded(tuple(expected[1].shape), torch.uint8) as index_q,
    ):
        target.run(a, (q.view(torch.float8_e4m3fn), index_q.view(torch.float8_e4m3fn)))
        assert torch.equal(q, bits(expected[0])) and torch.equal(index_q, bits(expected[1]))


@pytest.mark.parametrize(("heads", "kv_heads", "index_heads"), [(8, 4, 4), (4, 1, 2)])
def test_transformers(target: Target, heads: int, kv_heads: int, index_heads: int) -> None:
    """q, k, v, index_q and index_k of minimax_m3_vl in fp32, at positions up to 300,000."""
    layer = Layer.make(22, 64, heads, kv_heads, index_heads)
    indexer = layer.attention.indexer
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 127, 128, 65_536, 299_999])
    expected = layer.rows(x, positions)
    a = Args(
        x @ layer.qkv_weight.T,
        layer.attention.q_norm.weight,
        layer.attention.k_norm.weight,
        layer.table(300_000),
        positions,
        torch.tensor([5, 300, 2, 383, 0, 129]),
        torch.zeros(3, main_page("fp32", kv_heads).bytes, dtype=torch.uint8),
        heads,
        kv_heads,
        index_heads,
        indexer.q_norm.weight,
        indexer.k_norm.weight,
        torch.zeros(3, index_page("fp32").bytes, dtype=torch.uint8),
        kv_format="fp32",
        index_format="fp32",
    )
    q, index_q = target.run(a)
    found = {"q": q, "index_q": index_q}
    for name, cache, page, member in (
        ("k", a.kv_cache, main_page("fp32", kv_heads), "k"),
        ("v", a.kv_cache, main_page("fp32", kv_heads), "v"),
        ("index_k", a.index_cache, index_page("fp32"), "k"),
    ):
        rows = page.view(cache, member)[a.slot_mapping // 128, :, a.slot_mapping % 128]
        found[name] = rows.contiguous().view(torch.float32)
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_oracle_sees_a_second_rounding() -> None:
    """Rounding through bf16 on the way to E4M3 (sglang#36549) leaves the interval, so the checks above would see it."""
    exact = np.linspace(0.9, 3.9, 4001)[None]
    interval = Interval(exact, np.abs(exact) * 2.0**-20)
    assert_rounding(rounded(exact, "fp8"), interval, "fp8", "one rounding")
    with pytest.raises(AssertionError, match="twice"):
        assert_rounding(rounded(rounded(exact, "bf16"), "fp8"), interval, "fp8", "twice")
