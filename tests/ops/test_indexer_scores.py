from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

import msa_ops
from msa_ops.ops import indexer_scores
from msa_ops.ops.indexer_scores import Facts, cost, facts, generate, reference


def call(args: object, **changes: Any) -> torch.Tensor:
    record = dataclasses.replace(args, **changes)
    return msa_ops.indexer_scores(**{name: getattr(record, name) for name in record.__dataclass_fields__})


@pytest.mark.parametrize("q_dtype", ["bfloat16", "float32"])
def test_reference_gives_the_same_bits_alone_and_in_a_batch(q_dtype: str) -> None:
    """Random values, not integers: a draft token alone, in its verification, and in a chunk score alike."""
    args = generate(1, seq_lens=[700, 420, 333], q_lens=[40, 8, 1], variant="ragged", q_dtype=q_dtype)
    (together,) = reference(args)
    starts = args.cu_seqlens_q.tolist()
    for request in range(3):
        for token in range(starts[request], starts[request + 1]):
            behind = starts[request + 1] - 1 - token
            alone = dataclasses.replace(
                args,
                index_q=args.index_q[token : token + 1],
                block_table=args.block_table[request : request + 1],
                seq_lens=args.seq_lens[request : request + 1] - behind,
                cu_seqlens_q=None,
            )
            assert torch.equal(reference(alone)[0][0], together[token])


def test_reference_does_not_depend_on_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    args = generate(2, variant="chunked", seq_len=900)
    (expected,) = reference(args)
    monkeypatch.setattr(indexer_scores, "QUERY_ROWS", 20)
    monkeypatch.setattr(indexer_scores, "KEY_BLOCKS", 2)
    assert torch.equal(reference(args)[0], expected)


BAD = [
    ({"index_q": torch.zeros(6, 4, 64, dtype=torch.bfloat16)}, "index_q"),
    ({"index_q": torch.zeros(6, 512, dtype=torch.bfloat16)}, "index_q"),
    ({"index_q": torch.zeros(6, 4, 128, dtype=torch.float64)}, "index_q"),
    ({"index_q": torch.zeros(6, 4, 128).to(torch.float8_e4m3fnuz)}, "index_q"),
    ({"index_q": torch.zeros(6, 128, 4, dtype=torch.bfloat16).transpose(1, 2)}, "index_q"),
    ({"index_q": torch.zeros(7, 4, 128, dtype=torch.bfloat16)}, "cu_seqlens_q"),
    ({"index_cache": torch.zeros(20, 9216, dtype=torch.int8)}, "index_cache"),
    ({"index_cache": torch.zeros(20, 128, 72, dtype=torch.uint8)}, "index_cache"),
    ({"index_cache": torch.zeros(20, 4608, dtype=torch.uint8)}, "index_cache"),  # pages of 64 tokens
    ({"index_cache": torch.zeros(20, 16384, dtype=torch.uint8)}, "index_cache"),  # FP8 pages
    ({"index_cache": torch.zeros(20, 9224, dtype=torch.uint8)[:, :9216]}, "index_cache"),  # stride
    ({"index_cache": torch.zeros(20, 9232, dtype=torch.uint8)[:, 1:9217]}, "index_cache"),  # alignment
    ({"index_format": "fp8"}, "index_cache"),
    ({"index_format": "fp8_e4m3"}, "index_format"),
    ({"block_table": torch.zeros(3, 7, dtype=torch.int64)}, "block_table"),
    ({"block_table": torch.zeros(2, 7, dtype=torch.int32)}, "block_table"),
    ({"block_table": torch.zeros(21, dtype=torch.int32)}, "block_table"),
    ({"seq_lens": torch.zeros(3, dtype=torch.int64)}, "seq_lens"),
    ({"seq_lens": torch.zeros(3, 1, dtype=torch.int32)}, "seq_lens"),
    ({"cu_seqlens_q": torch.zeros(3, dtype=torch.int32)}, "cu_seqlens_q"),
    ({"cu_seqlens_q": torch.zeros(4, dtype=torch.int64)}, "cu_seqlens_q"),
    ({"index_k_scale": torch.ones(2)}, "index_k_scale"),
    ({"index_k_scale": torch.ones(1, dtype=torch.float16)}, "index_k_scale"),
    ({"score_scale": 0.0}, "score_scale"),
    ({"score_scale": -1.0}, "score_scale"),
    ({"score_scale": math.nan}, "score_scale"),
    ({"score_scale": math.inf}, "score_scale"),
    ({"score_scale": 1e39}, "score_scale"),
    ({"score_scale": 1e-50}, "score_scale"),
    ({"rounding": "e5m2"}, "rounding"),
    ({"max_seqlen_q": -1}, "max_seqlen_q"),
    ({"seq_lens": torch.zeros(3, dtype=torch.int32, device="meta")}, "seq_lens"),
]


@pytest.mark.parametrize(("changes", "name"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_arguments_are_named(changes: dict[str, Any], name: str) -> None:
    args = generate(3)
    call(args)
    with pytest.raises(ValueError, match=rf"^{name}: .*accepted: "):
        call(args, **changes)


def test_facts() -> None:
    assert facts(generate(4, q_len=1, max_blocks=1000, seq_len=130)) == Facts()
    found = facts(
        generate(
            4, q_len=5, variant="ragged", num_heads=2, q_dtype="float8_e4m3fn", index_format="fp8", index_k_scale=2.0
        )
    )
    assert found == Facts("float8_e4m3fn", "fp8", 2, "exact", found.max_seqlen_q, 8, True, False)
    assert facts(dataclasses.replace(generate(4, q_len=5), max_seqlen_q=3)).max_seqlen_q == 4


def test_cost_counts_each_byte_once() -> None:
    args = generate(5, seq_lens=[300, 0, 1], q_lens=[2, 1, 0], num_heads=4)
    found = cost(args)
    # Request 0 has two query tokens that see 299 and 300 keys; request 1 sees none; request 2 asks nothing.
    assert found.bytes_read == 3 * 4 * 128 * 2 + 4 * (3 + 4 + 3) + 300 * 72
    assert found.bytes_written == 3 * 4 * args.block_table.shape[1] * 4
    assert found.flops == 2 * 128 * 4 * (299 + 300)
