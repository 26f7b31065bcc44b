"""qkv_insert on every backend: the projection in fp32, and the same epilogue as qk_norm_rope_insert."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops.cache.page import index_page, main_page
from msa_ops.ops import qk_norm_rope_insert
from msa_ops.ops.qkv_insert import VARIANTS, Args, generate
from tests.contract.guard import guarded
from tests.contract.oracles.insert import assert_call
from tests.contract.oracles.minimax_m3 import Layer
from tests.contract.oracles.projection import project
from tests.contract.target import Target, assert_close

OP = "qkv_insert"


def with_copies(a: Args) -> Args:
    index = None if a.index_cache is None else a.index_cache.clone()
    return dataclasses.replace(a, kv_cache=a.kv_cache.clone(), index_cache=index)


@np.errstate(all="ignore")
def run_checked(target: Target, a: Args, skip: tuple[int, ...] = ()) -> tuple[Tensor, ...]:
    before = with_copies(a)
    results = target.run(a)
    rows = project(a.x, a.qkv_weight, a.qkv_weight_scale, a.input_format)
    assert_call(a, rows, a.x.dtype, (before.kv_cache, before.index_cache), results, skip)
    return results


def assert_same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("tokens", [0, 1, 5, 128, 129])
@pytest.mark.parametrize(("heads", "kv_heads", "index_heads"), [(64, 4, 4), (32, 2, 2), (16, 1, 1)])
def test_geometries(target: Target, tokens: int, heads: int, kv_heads: int, index_heads: int) -> None:
    a = generate(
        tokens, batch=1, q_len=tokens, seq_len=200, hidden=64, num_heads=heads, num_kv_heads=kv_heads,
        num_index_heads=index_heads,
    )  # fmt: skip
    run_checked(target, a)


@pytest.mark.parametrize("weight_format", ["none", "mxfp8"])
@pytest.mark.parametrize("input_format", ["none", "mxfp8"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
@pytest.mark.parametrize("q_dtype", [None, "float8_e4m3fn"])
def test_weight_and_input_formats(
    target: Target, weight_format: str, input_format: str, dtype: str, q_dtype: str | None
) -> None:
    a = generate(1, weight_format=weight_format, input_format=input_format, dtype=dtype, q_dtype=q_dtype)
    run_checked(target, a)


@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("layout", ["planes", "slots"])
@pytest.mark.parametrize("order", ["linear", "token_quads", "swizzle_128x4"])
def test_cache_formats(target: Target, fmt: str, layout: str, order: str) -> None:
    a = generate(
        2, kv_format=fmt, kv_layout=layout, v_scale_layout=order, k_scale_layout="linear", index_format=fmt,
        num_kv_heads=2, gemma=layout == "planes",
    )  # fmt: skip
    run_checked(target, a)


@pytest.mark.parametrize("weight_format", ["none", "mxfp8"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(target: Target, variant: str, weight_format: str) -> None:
    a = generate(3, variant=variant, weight_format=weight_format)
    run_checked(target, a, skip=(0,) if variant in ("nan_row", "inf_row") else ())


def test_projection_is_not_rounded_before_the_norm(target: Target) -> None:
    """With bf16 input the caches hold roundings of the fp32 sums, which bf16 rows would miss (sglang#36549)."""
    a = generate(4, batch=1, q_len=64, kv_format="fp32", index_format="fp8")
    rounded = project(a.x, a.qkv_weight, None, "none")
    run_checked(target, a)
    values = {n: getattr(with_copies(a), n) for n in qk_norm_rope_insert.Args.__dataclass_fields__ if n != "qkv"}
    twice = qk_norm_rope_insert.Args(torch.from_numpy(rounded.value).bfloat16(), **values)
    before = with_copies(a)
    results = qk_norm_rope_insert.reference(twice)
    with pytest.raises(AssertionError):
        assert_call(twice, rounded, torch.bfloat16, (before.kv_cache, before.index_cache), results)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
@pytest.mark.parametrize("input_format", ["none", "mxfp8"])
def test_a_bad_row_stays_alone(target: Target, poison: float, input_format: str) -> None:
    good = generate(5, input_format=input_format, weight_format="mxfp8")
    bad = dataclasses.replace(with_copies(good), x=good.x.clone())
    bad.x[4, 7] = poison
    good_results, bad_results = target.run(good), target.run(bad)
    rest = torch.arange(len(good.x)) != 4
    assert_same(tuple(r[rest] for r in good_results), tuple(r[rest] for r in bad_results))
    slot = int(good.slot_mapping[4])
    for name, page in (("kv_cache", main_page("nvfp4", 1)), ("index_cache", index_page("nvfp4"))):
        for member, _ in page.members:
            one, other = (page.view(getattr(a, name), member).clone() for a in (good, bad))
            one[slot // 128, :, slot % 128] = other[slot // 128, :, slot % 128]
            assert torch.equal(one, other), (name, member)


def test_one_by_one_equals_all_at_once(target: Target) -> None:
    """Bit for bit in the reference, whose sums do not depend on the batch; within the tolerance elsewhere."""
    a = generate(6, batch=2, q_len=5, weight_format="mxfp8", kv_format="fp32", index_format="fp32")
    single = with_copies(a)
    together = target.run(a)
    pieces = []
    for t in range(len(a.x)):
        part = {name: getattr(single, name)[t : t + 1] for name in ("x", "positions", "slot_mapping")}
        pieces.append(target.run(dataclasses.replace(single, **part)))
    alone = tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))
    if target.backend == "reference":
        assert_same((*together, a.kv_cache, a.index_cache), (*alone, single.kv_cache, single.index_cache))
    for one, other, tolerance in zip(together, alone, target.spec.tolerance(a), strict=True):
        assert_close(one, other, tolerance)


def test_repeats_give_the_same_bits(target: Target) -> None:
    a = generate(7, batch=4, q_len=17, weight_format="mxfp8", input_format="mxfp8")
    first = target.run(a)
    caches = with_copies(a)
    for _ in range(5):
        assert_same(target.run(a), first)
    assert_same((a.kv_cache, a.index_cache), (caches.kv_cache, caches.index_cache))


def test_scale_type_of_the_weight(target: Target) -> None:
    """uint8 and float8_e8m0fnu are the same bytes."""
    a = generate(8, weight_format="mxfp8")
    b = dataclasses.replace(with_copies(a), qkv_weight_scale=a.qkv_weight_scale.view(torch.float8_e8m0fnu))
    assert_same(target.run(a), target.run(b))
    assert_same((a.kv_cache, a.index_cache), (b.kv_cache, b.index_cache))


def test_rows_of_the_weight_are_not_mixed_up(target: Target) -> None:
    """A weight that copies one input element to each head shows which rows feed q, k, v, index_q and index_k."""
    a = generate(
        9, batch=1, q_len=1, hidden=16, num_heads=2, num_kv_heads=2, num_index_heads=2, dtype="float32",
        kv_format="fp32", index_format="fp32",
    )  # fmt: skip
    a.qkv_weight = torch.zeros(9 * 128, 16)
    for head in range(9):
        a.qkv_weight[head * 128, head] = 1.0
    a.x = torch.arange(1.0, 17.0)[None]
    target.run(a)
    slot = int(a.slot_mapping[0])
    v = main_page("fp32", 2).view(a.kv_cache, "v")[slot // 128, :, slot % 128].contiguous().view(torch.float32)
    assert v[:, 0].tolist() == [5.0, 6.0] and not v[:, 1:].any()
    run_checked(target, a)


def test_pool_and_guards(target: Target) -> None:
    a = generate(10)
    main, index = a.kv_cache.shape[1], a.index_cache.shape[1]
    with guarded((len(a.kv_cache), main + index + 64), torch.uint8) as pool:
        a.kv_cache, a.index_cache = pool[:, 32 : 32 + main], pool[:, 48 + main : 48 + main + index]
        a.slot_mapping[:2] = torch.tensor([-1, 128 * len(a.kv_cache)])
        run_checked(target, a)
        for first, last in ((0, 32), (32 + main, 48 + main), (48 + main + index, 64 + main + index)):
            assert pool[:, first:last].eq(0xC3).all()


def test_transformers(target: Target) -> None:
    """q and index_q of minimax_m3_vl in fp32, from the hidden states on."""
    layer = Layer.make(12, 64, 8, 4, 4)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 127, 1_000, 4_095])
    a = generate(12, batch=1, q_len=5, hidden=64, num_heads=8, num_kv_heads=4, num_index_heads=4, dtype="float32")
    a = dataclasses.replace(
        a,
        x=x,
        qkv_weight=layer.qkv_weight,
        q_weight=layer.attention.q_norm.weight,
        k_weight=layer.attention.k_norm.weight,
        index_q_weight=layer.attention.indexer.q_norm.weight,
        index_k_weight=layer.attention.indexer.k_norm.weight,
        cos_sin_cache=layer.table(4_096),
        positions=positions,
    )
    expected = layer.rows(x, positions)
    q, index_q = run_checked(target, a)
    torch.testing.assert_close(q, expected["q"], rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(index_q, expected["index_q"], rtol=1e-5, atol=2e-5)


def test_pool_through_torch_compile() -> None:
    a = generate(11, weight_format="mxfp8")
    main, index = a.kv_cache.shape[1], a.index_cache.shape[1]
    first = torch.randint(0, 256, (len(a.kv_cache), main + index + 64), dtype=torch.uint8)
    values = {n: getattr(a, n) for n in a.__dataclass_fields__ if n not in ("kv_cache", "index_cache")}

    def step(pool: Tensor) -> tuple[Tensor, Tensor]:
        kv, keys = pool[:, 32 : 32 + main], pool[:, 48 + main : 48 + main + index]
        return msa_ops.qkv_insert(kv_cache=kv, index_cache=keys, **values)

    eager, compiled = first.clone(), first.clone()
    expected = step(eager)
    results = torch.compile(step, backend="aot_eager", fullgraph=True)(compiled)
    assert torch.equal(eager, compiled) and not torch.equal(eager, first)
    assert_same(results, expected)
