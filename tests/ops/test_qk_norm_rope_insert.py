"""qk_norm_rope_insert: refusals of its own argument; the rest is in test_insert_epilogue and the contract."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from msa_ops.ops.qk_norm_rope_insert import OP, Args, generate


def call(a: Args) -> tuple[torch.Tensor, torch.Tensor]:
    return OP(**{name: getattr(a, name) for name in a.__dataclass_fields__})


def rows(tokens: int, stride: int, offset: int) -> torch.Tensor:
    memory = torch.zeros(tokens * stride + offset, dtype=torch.bfloat16)
    return memory.as_strided((tokens, 15 * 128), (stride, 1), offset)


@pytest.mark.parametrize(
    "qkv",
    [
        torch.zeros(12, 14 * 128, dtype=torch.bfloat16),
        torch.zeros(12, 15, 128, dtype=torch.bfloat16),
        torch.zeros(12, 15 * 128, dtype=torch.float64),
        torch.zeros(12, 15 * 128, dtype=torch.float8_e4m3fn),
        torch.zeros(15 * 128, 12, dtype=torch.bfloat16).t(),
        rows(12, 15 * 128 + 4, 0),
        rows(12, 15 * 128, 4),
    ],
    ids=["width", "dims", "float64", "float8", "transposed", "odd stride", "odd start"],
)
def test_bad_rows(qkv: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^qkv: .*accepted"):
        call(dataclasses.replace(generate(0), qkv=qkv))


def test_rows_of_a_wider_matrix() -> None:
    a = generate(0)
    memory = torch.full((12, 20 * 128), torch.nan, dtype=torch.bfloat16)
    memory[:, 256 : 256 + 15 * 128] = a.qkv
    strided = dataclasses.replace(a, qkv=memory[:, 256 : 256 + 15 * 128])
    for one, other in zip(call(strided), call(a), strict=True):
        assert torch.equal(one, other)


def test_numbers_of_tokens_share_one_graph() -> None:
    """Three lengths, at most two graphs: the specialised first and the dynamic one."""
    a = generate(0, batch=1, q_len=8, seq_len=200)
    graphs = []

    def count(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    def step(qkv: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return call(dataclasses.replace(a, qkv=qkv, positions=positions, slot_mapping=slots))[0]

    compiled = torch.compile(step, backend=count, fullgraph=True)
    for tokens in (8, 5, 3):
        part = (a.qkv[:tokens], a.positions[:tokens], a.slot_mapping[:tokens])
        assert torch.equal(compiled(*part), step(*part))
    assert len(graphs) <= 2
