"""Refusals that qk_norm_rope_insert and qkv_insert share, facts, and the byte model."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from msa_ops.ops import insert_epilogue, qk_norm_rope_insert, qkv_insert

OPS = pytest.mark.parametrize("op", [qk_norm_rope_insert, qkv_insert], ids=["qk_norm_rope_insert", "qkv_insert"])


def call(op: Any, a: Any) -> Any:
    return op.OP(**{name: getattr(a, name) for name in a.__dataclass_fields__})


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def wide(cache: torch.Tensor, stride: int) -> torch.Tensor:
    memory = torch.zeros(cache.shape[0] * stride + 64, dtype=torch.uint8)
    return memory.as_strided(tuple(cache.shape), (stride, 1))


BAD = [
    ("num_heads", {"num_heads": 0}),
    ("num_kv_heads", {"num_kv_heads": 0}),
    ("num_index_heads", {"num_index_heads": -1}),
    ("index_q_weight", {"index_q_weight": None}),
    ("index_k_weight", {"index_k_weight": None}),
    ("index_cache", {"index_cache": None}),
    ("q_weight", {"q_weight": bf16(64)}),
    ("q_weight", {"q_weight": bf16(128).half()}),
    ("k_weight", {"k_weight": torch.zeros(128)}),
    ("index_k_weight", {"index_k_weight": torch.zeros(128)}),
    ("cos_sin_cache", {"cos_sin_cache": bf16(130, 64)}),
    ("cos_sin_cache", {"cos_sin_cache": torch.zeros(130, 63)}),
    ("cos_sin_cache", {"cos_sin_cache": torch.zeros(130, 130)}),
    ("cos_sin_cache", {"cos_sin_cache": torch.zeros(130, 0)}),
    ("cos_sin_cache", {"cos_sin_cache": torch.zeros(0, 64)}),
    ("cos_sin_cache", {"cos_sin_cache": torch.zeros(64)}),
    ("cos_sin_cache", {"cos_sin_cache": torch.zeros(64, 130).t()}),
    ("positions", {"positions": torch.zeros(11, dtype=torch.int64)}),
    ("positions", {"positions": torch.zeros(12)}),
    ("positions", {"positions": torch.zeros(3, 12, dtype=torch.int64)}),
    ("slot_mapping", {"slot_mapping": torch.zeros(13, dtype=torch.int64)}),
    ("slot_mapping", {"slot_mapping": torch.zeros(12, dtype=torch.int16)}),
    ("slot_mapping", {"slot_mapping": torch.zeros(24, dtype=torch.int64)[::2]}),
    ("kv_format", {"kv_format": "fp8_e4m3"}),
    ("kv_format", {"kv_format": "mxfp4"}),
    ("kv_layout", {"kv_layout": "NHD"}),
    ("kv_layout", {"kv_layout": "packed"}),
    ("index_format", {"index_format": "int8"}),
    ("k_scale_layout", {"k_scale_layout": "swizzled"}),
    ("v_scale_layout", {"v_scale_layout": ""}),
    ("kv_cache", {"kv_format": "fp8"}),
    ("index_cache", {"index_format": "bf16"}),
    ("q_dtype", {"q_dtype": torch.float8_e4m3fnuz}),
    ("q_dtype", {"q_dtype": torch.float8_e5m2}),
    ("q_dtype", {"q_dtype": torch.float16}),
    ("eps", {"eps": 0.0}),
    ("eps", {"eps": 1e39}),
    ("k_scale", {"k_scale": torch.ones(2)}),
    ("v_scale", {"v_scale": torch.ones(1, dtype=torch.float64)}),
    ("index_k_scale", {"index_k_scale": torch.ones(1, dtype=torch.bfloat16)}),
]


@OPS
@pytest.mark.parametrize(("name", "change"), BAD, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BAD)])
def test_bad_input_names_the_argument(op: Any, name: str, change: dict[str, Any]) -> None:
    """Before anything is written: the caches keep their bytes."""
    a = dataclasses.replace(op.generate(0), **change)
    before = a.kv_cache.clone()
    with pytest.raises(ValueError, match=rf"^{name}: .*accepted"):
        if name in ("num_heads", "num_kv_heads", "num_index_heads"):
            insert_epilogue.check(a, 12, torch.bfloat16)  # the row's width is refused before, by name of the row
        else:
            call(op, a)
    assert torch.equal(a.kv_cache, before)


@OPS
@pytest.mark.parametrize("name", ["num_heads", "num_kv_heads", "num_index_heads"])
def test_width_of_the_row_follows_the_heads(op: Any, name: str) -> None:
    a = op.generate(0)
    rows = "qkv" if op is qk_norm_rope_insert else "qkv_weight"
    with pytest.raises(ValueError, match=rf"^{rows}: shape .*accepted"):
        call(op, dataclasses.replace(a, **{name: getattr(a, name) + 1}))


@OPS
@pytest.mark.parametrize("name", ["kv_cache", "index_cache"])
def test_bad_pages(op: Any, name: str) -> None:
    a = op.generate(0)
    cache = getattr(a, name)
    for bad in (
        cache[:, :-16],
        cache.view(torch.int8),
        cache[0],
        wide(cache, cache.shape[1] + 8),
        wide(cache, cache.shape[1] - 16),
        torch.zeros(cache.numel() + 64, dtype=torch.uint8)[8:].as_strided(cache.shape, cache.stride()),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: .*accepted"):
            call(op, dataclasses.replace(a, **{name: bad}))


@OPS
def test_caches_have_the_same_pages(op: Any) -> None:
    a = op.generate(0)
    with pytest.raises(ValueError, match=r"^index_cache: \d+ pages; accepted"):
        call(op, dataclasses.replace(a, index_cache=a.index_cache[:-1]))


@OPS
@pytest.mark.parametrize(
    ("shift", "collides"),
    [(-9_216, False), (-9_200, True), (0, True), (16, True), ("behind", False), ("next", False), ("straddles", True)],
)
def test_columns_may_not_share_bytes(op: Any, shift: int | str, collides: bool) -> None:
    """index_cache beside kv_cache in a pool row, on it, and across the border of a row onto the next page."""
    a = op.generate(0)
    pages, main = a.kv_cache.shape
    stride = main + 2 * 9_216
    memory = torch.zeros((pages + 3) * stride, dtype=torch.uint8)
    start = stride
    at = start + {"behind": main, "next": stride - 9_216, "straddles": stride - 9_200}.get(shift, shift)
    kv = memory.as_strided((pages, main), (stride, 1), start)
    index = memory.as_strided((pages, 9_216), (stride, 1), at)
    changed = dataclasses.replace(a, kv_cache=kv, index_cache=index)
    if collides:
        with pytest.raises(ValueError, match=r"^index_cache: shares bytes"):
            call(op, changed)
    else:
        call(op, changed)


@OPS
@pytest.mark.parametrize(
    ("start", "stride", "collides"),
    [("on", 9_216, True), ("room", 9_216, True), ("behind", 9_216, False), ("behind", 0, False), ("on", 0, True)],
)
@pytest.mark.parametrize("pages", [1, 3])
def test_columns_of_other_strides_may_not_share_bytes(
    op: Any, start: str, stride: int, collides: bool, pages: int
) -> None:
    """There is room for one page of index keys behind each page of kv_cache, not for more."""
    a = op.generate(0)
    main = a.kv_cache.shape[1]
    pitch = main + 9_216
    memory = torch.zeros((pages + 1) * pitch + pages * 9_216, dtype=torch.uint8)
    kv = memory.as_strided((pages, main), (pitch, 1), 0)
    index = memory.as_strided((pages, 9_216), (stride, 1), {"on": 0, "room": main, "behind": pages * pitch}[start])
    changed = dataclasses.replace(a, kv_cache=kv, index_cache=index)
    if stride == 0:  # refused as pages of its own; only what is shared is looked at here
        assert insert_epilogue._pages_collide(kv, index) is collides
    elif collides and not (start == "room" and pages == 1):
        with pytest.raises(ValueError, match=r"^index_cache: shares bytes"):
            call(op, changed)
    else:
        call(op, changed)


@OPS
@pytest.mark.parametrize("name", ["index_q_weight", "index_k_weight", "index_cache", "index_k_scale"])
def test_index_arguments_need_index_heads(op: Any, name: str) -> None:
    a, full = op.generate(0, variant="dense"), op.generate(0, variant="scaled")
    with pytest.raises(ValueError, match=rf"^{name}: a tensor with num_index_heads 0; accepted: None"):
        call(op, dataclasses.replace(a, **{name: getattr(full, name)}))


@OPS
def test_dense_layers_get_an_empty_index_query(op: Any) -> None:
    a = op.generate(0, variant="dense")
    q, index_q = call(op, a)
    assert q.shape == (12, a.num_heads, 128) and index_q.shape == (12, 0, 128)


@OPS
def test_fakes_need_no_memory(op: Any) -> None:
    a = op.generate(0, q_dtype="float8_e4m3fn")
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fake = dataclasses.replace(
            a,
            **{
                name: mode.from_tensor(value)
                for name in a.__dataclass_fields__
                if isinstance(value := getattr(a, name), torch.Tensor)
            },
        )
        q, index_q = call(op, fake)
    assert q.shape == (12, a.num_heads, 128) and q.dtype == index_q.dtype == torch.float8_e4m3fn


@OPS
def test_facts(op: Any) -> None:
    a = op.generate(0, kv_format="fp8", variant="scaled", index_dtype="int32", rotary_dim=32)
    facts = op.facts(a)
    assert (facts.tokens, facts.rotary_dim, facts.scaled, facts.kv_format) == (16, 32, True, "fp8")
    assert facts.positions_dtype == facts.slot_mapping_dtype == "int32"
    assert op.Facts().num_heads == 64 and op.Facts().kv_format == "nvfp4"


@pytest.mark.parametrize(("fmt", "main", "index"), [("nvfp4", 576, 72), ("fp8", 1_024, 128), ("bf16", 2_048, 256)])
def test_bytes_a_token(fmt: str, main: int, index: int) -> None:
    """What M3.1-Flash writes a token and layer: K and V of 4 heads, the index key, and the queries."""
    a = qk_norm_rope_insert.generate(
        0, batch=1, q_len=1, num_heads=64, num_kv_heads=4, num_index_heads=4, kv_format=fmt, index_format=fmt
    )
    queries = (64 + 4) * 128 * 2
    assert qk_norm_rope_insert.cost(a).bytes_written == main + index + queries
    a.slot_mapping.fill_(-1)
    assert qk_norm_rope_insert.cost(a).bytes_written == queries
    weights, row, slots = 4 * 128 * 2, 64 * 4, 2 * 8
    assert qk_norm_rope_insert.cost(a).bytes_read == 9_856 * 2 + weights + row + slots
