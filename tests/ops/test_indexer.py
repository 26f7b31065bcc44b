from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops.cache.page import index_page
from msa_ops.ops import indexer_scores, select_blocks
from msa_ops.ops.indexer import Args, Facts, cost, facts, generate, reference


def call(args: object, **changes: Any) -> Tensor:
    record = dataclasses.replace(args, **changes)
    return msa_ops.indexer(**{name: getattr(record, name) for name in record.__dataclass_fields__})


@pytest.mark.parametrize("variant", ["chunked", "padding", "nan_keys", "infinite", "bad_pages", "too_long"])
@pytest.mark.parametrize("topk_layout", ["THK", "HTK"])
def test_is_selection_of_scores(variant: str, topk_layout: str) -> None:
    args = generate(1, variant=variant, q_len=3, topk=5, init_blocks=1, topk_layout=topk_layout, seq_len=1400)
    scores = msa_ops.indexer_scores(args.index_q, args.index_cache, args.block_table, args.seq_lens, args.cu_seqlens_q)
    width = args.block_table.shape[1]
    count = blocks_of(args).clamp(0, width).to(torch.int32)
    expected = msa_ops.select_blocks(scores, count, topk=5, init_blocks=1, topk_layout=topk_layout)
    assert torch.equal(call(args), expected)


def blocks_of(args: Args) -> Tensor:
    """p // 128 + 1 of each query token, by a loop."""
    tokens, batch = len(args.index_q), len(args.seq_lens)
    starts = args.cu_seqlens_q.tolist() if args.cu_seqlens_q is not None else range(0, tokens + 1, tokens // batch)
    count = torch.zeros(tokens, dtype=torch.int64)
    for request, seq_len in enumerate(args.seq_lens.tolist()):
        for token in range(starts[request], starts[request + 1]):
            position = seq_len - (starts[request + 1] - token)
            count[token] = max(position // 128 + 1, 0)
    return count


@pytest.mark.parametrize("q_dtype", ["bfloat16", "float32"])
def test_verify_is_single_decodes_bit_by_bit(q_dtype: str) -> None:
    """The reference promises this for any values, not for exact sums alone."""
    args = generate(2, seq_lens=[2600, 2100], q_len=8, q_dtype=q_dtype, topk=7)
    (ids,) = reference(args)
    for i in range(8):
        single = dataclasses.replace(args, index_q=args.index_q[i::8], seq_lens=args.seq_lens - (7 - i))
        assert torch.equal(reference(single)[0], ids[i::8])


def test_reference_does_not_depend_on_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    args = generate(3, variant="chunked", seq_len=1500, topk=3)
    (expected,) = reference(args)
    monkeypatch.setattr(indexer_scores, "QUERY_ROWS", 40)
    monkeypatch.setattr(indexer_scores, "KEY_BLOCKS", 3)
    assert torch.equal(reference(args)[0], expected)
    monkeypatch.setattr(select_blocks, "ELEMENTS", 100)
    assert torch.equal(reference(args)[0], expected)


@pytest.mark.parametrize(("topk", "local_blocks"), [(3, 1), (4, 2), (16, 1), (2, 0)])
def test_agrees_with_transformers(topk: int, local_blocks: int) -> None:
    """Same blocks, and the same attention mask, as the indexer of the model's transformers implementation.

    Its ties and its order of ids are not defined, so scores are continuous and ids are sorted first.
    """
    from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as model
    from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig

    batch, length, hidden = 2, 900, 48
    config = MiniMaxM3VLTextConfig(
        hidden_size=hidden, num_attention_heads=8, index_topk_blocks=topk, index_local_blocks=local_blocks
    )
    torch.manual_seed(0)
    module = model.MiniMaxM3VLIndexer(config, 0)
    seen: dict[str, Tensor] = {}
    module.q_norm.register_forward_hook(lambda _m, _i, out: seen.update(q=out))
    module.k_norm.register_forward_hook(lambda _m, _i, out: seen.update(k=out))
    angle = torch.randn(batch, length, 32).repeat(1, 1, 2)
    rope = (angle.cos(), angle.sin())
    position_ids = torch.arange(length).expand(batch, -1)
    with torch.no_grad():
        theirs = module(torch.randn(batch, length, hidden), rope, None, position_ids)
        query, keys = model.apply_rotary_pos_emb(seen["q"].transpose(1, 2), seen["k"].transpose(1, 2), *rope)
    blocks = -(-length // 128)
    cache = torch.full((batch * blocks, index_page("fp32").bytes), 0xFF, dtype=torch.uint8)
    rows = cache.view(torch.float32).view(batch, blocks * 128, 128)
    rows[:, :length] = keys[:, 0]
    ids = msa_ops.indexer(
        query.transpose(1, 2).reshape(batch * length, 4, 128).contiguous(),
        cache,
        torch.arange(batch * blocks, dtype=torch.int32).view(batch, blocks),
        torch.full((batch,), length, dtype=torch.int32),
        topk=topk,
        local_blocks=local_blocks,
        index_format="fp32",
    )
    ours = ids.view(batch, length, 4, topk).transpose(1, 2).long()
    packed = theirs.masked_fill(theirs < 0, 2**31).sort(dim=-1).values
    packed = packed.masked_fill(packed == 2**31, -1)
    packed = torch.nn.functional.pad(packed, (0, topk - packed.shape[-1]), value=-1)
    # Both sum in fp32 or better, in other orders: a row may differ only where scores are as good as equal.
    same = (ours == packed).all(-1)
    assert same.double().mean() > 0.998
    dots = (query.double() @ keys.double().transpose(-1, -2)).masked_fill(
        torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf
    )
    best = torch.nn.functional.pad(dots, (0, blocks * 128 - length), value=-torch.inf).unflatten(-1, (-1, 128)).amax(-1)
    sums = [best.gather(-1, rows.clamp(min=0)).where(rows >= 0, 0.0).sum(-1) for rows in (ours, packed)]
    assert torch.allclose(*sums, rtol=0, atol=1e-3)

    mask = module.build_block_mask(theirs, None, length, torch.float32, "cpu", position_ids)
    token = torch.arange(length)
    chosen = (ours.unsqueeze(-1) == torch.arange(blocks)).any(-2)
    keep = chosen.repeat_interleave(128, dim=-1)[..., :length] & (token <= token.unsqueeze(1))
    mask = (mask == 0).unflatten(1, (4, 2))  # two query heads for each index head
    assert torch.equal(mask[:, :, 0][same], keep[same]) and torch.equal(mask[:, :, 0], mask[:, :, 1])


BAD = [
    ({"topk": 0}, "topk"),
    ({"topk": 65}, "topk"),
    ({"init_blocks": -1}, "init_blocks"),
    ({"local_blocks": -1}, "local_blocks"),
    ({"topk_layout": "auto"}, "topk_layout"),
    ({"index_format": "mxfp4"}, "index_format"),
    ({"rounding": "bf16"}, "rounding"),
    ({"index_q": torch.zeros(6, 4, 96)}, "index_q"),
    ({"index_cache": torch.zeros(9, 9200, dtype=torch.uint8)}, "index_cache"),
    ({"block_table": torch.zeros(3, 40, dtype=torch.int16)}, "block_table"),
    ({"cu_seqlens_q": torch.zeros(3, dtype=torch.int32)}, "cu_seqlens_q"),
    ({"index_k_scale": torch.ones(4)}, "index_k_scale"),
    ({"max_seqlen_q": -2}, "max_seqlen_q"),
    ({"workspace": torch.zeros(4)}, "workspace"),
]


@pytest.mark.parametrize(("changes", "name"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_arguments_are_named(changes: dict[str, Any], name: str) -> None:
    args = generate(4)
    call(args)
    with pytest.raises(ValueError, match=rf"^{name}: .*accepted: "):
        call(args, **changes)


def test_facts() -> None:
    assert facts(generate(5, q_len=1, max_blocks=1000, seq_len=130)) == Facts()
    found = facts(generate(5, q_len=9, num_heads=1, topk=7, init_blocks=1, local_blocks=2, topk_layout="HTK"))
    assert found == Facts("bfloat16", "nvfp4", 1, "exact", 7, 1, 2, "HTK", 16, 32)


def test_cost_has_no_scores_in_it() -> None:
    args = generate(6, seq_lens=[3000], q_lens=[2])
    found = cost(args)
    assert found.bytes_read == 2 * 4 * 128 * 2 + 4 * (1 + 24) + 3000 * 72
    assert found.bytes_written == 2 * 4 * 16 * 4
    assert found.flops == 2 * 128 * 4 * (2999 + 3000)


@pytest.mark.parametrize("op", [msa_ops.indexer, msa_ops.indexer_scores])
def test_no_heads_and_no_requests_give_empty_results(op: Callable[..., Tensor]) -> None:
    cache = torch.zeros(4, index_page("nvfp4").bytes, dtype=torch.uint8)
    table, lengths = torch.zeros(2, 3, dtype=torch.int32), torch.full((2,), 300, dtype=torch.int32)
    assert op(torch.zeros(2, 0, 128), cache, table, lengths).shape[:2] == (2, 0)
    assert op(torch.zeros(0, 4, 128), cache, table[:0], lengths[:0]).shape[:2] == (0, 4)
    with pytest.raises(ValueError, match=r"cu_seqlens_q: None with 2 query tokens for 0 requests"):
        op(torch.zeros(2, 4, 128), cache, table[:0], lengths[:0])
