"""Mixtures of experts: gating, sorting, the two MXFP4 products."""

from __future__ import annotations

import torch

from tests.emulator.gfx950.public.cases import Case, compare, cosine
from tests.emulator.gfx950.public.cases.gemm import random_mxfp4, shuffled_rows, shuffled_scales, wide
from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.mend import Insert


def _gating(experts: int, topk: int, tokens: int = 37):
    def run(_: Hip) -> str:
        from kernels.moe.topk_gating_softmax_kernel import build_topk_gating_softmax_module

        # No two equal numbers in a row, so that the choice is one.
        order = torch.stack([torch.randperm(experts) for _ in range(tokens)])
        logits = (order / 16).bfloat16()
        weights = torch.full((tokens, topk), float("nan"))
        ids, places = (torch.full((tokens, topk), -1, dtype=torch.int32) for _ in "ab")
        build_topk_gating_softmax_module(experts, topk, "bf16", renormalize=True)(
            logits, weights, ids, places, tokens, stream=torch.cuda.current_stream()
        )
        values, wanted = logits.double().softmax(-1).topk(topk)
        assert (ids == wanted).all()
        return compare(weights, values / values.sum(-1, keepdim=True), absolute=1e-5)

    return run


def _routing(tokens: int, experts: int, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.stack([torch.randperm(experts)[:topk] for _ in range(tokens)]).to(torch.int32)
    return ids, torch.rand(tokens, topk)


def _sorted(ids: torch.Tensor, weights: torch.Tensor, experts: int, unit: int):
    """Tokens by expert, each expert's padded to units: ids with the place in bits 24 up, weights, experts of units."""
    tokens, topk = ids.shape
    order, by, of = [], [], []
    for expert in range(experts):
        token, place = torch.where(ids == expert)
        padding = -len(token) % unit
        order += [(place << 24 | token), torch.full((padding,), topk << 24 | tokens)]
        by += [weights[token, place], torch.zeros(padding)]
        of += [expert] * ((len(token) + padding) // unit)
    return torch.cat(order).to(torch.int32), torch.cat(by), torch.tensor(of, dtype=torch.int32)


def _sorting(tokens: int, experts: int, topk: int, unit: int = 32):
    def run(_: Hip) -> str:
        from kernels.moe.moe_sorting_kernel import moe_sorting_flydsl

        ids, weights = _routing(tokens, experts, topk)
        room = ids.numel() + experts * unit - topk
        order, by = torch.full((room,), -1, dtype=torch.int32), torch.full((room,), float("nan"))
        of = torch.full((-(-room // unit),), -1, dtype=torch.int32)
        valid, buffer = torch.zeros(2, dtype=torch.int32), torch.ones(tokens, 64, dtype=torch.bfloat16)
        moe_sorting_flydsl(ids, weights, order, by, of, valid, buffer, experts, unit)
        wanted = _sorted(ids, weights, experts, unit)
        n = len(wanted[0])
        assert valid.tolist() == [n, tokens] and (buffer == 0).all()
        assert (of[: n // unit] == wanted[2]).all()
        # Tokens of one expert may come in any order.
        for first in range(0, n, unit):
            assert sorted(order[first : first + unit].tolist()) == sorted(wanted[0][first : first + unit].tolist())
        lookup = {int(i): float(w) for i, w in zip(*wanted[:2], strict=True)}
        assert all(lookup[int(i)] == float(w) for i, w in zip(order[:n], by[:n], strict=True))
        return f"{n} rows"

    return run


def _mxfp4(second: bool, unit: int = 32, tokens: int = 24):
    """Gate and up, SiLU, to MXFP4 again; down, weighted, added up with atomics."""

    def run(_: Hip) -> str:
        from kernels.moe.mxfp_moe.host import flydsl_mxfp4_gemm1, flydsl_mxfp4_gemm2

        hidden, inner, experts, topk = 1024, 256, 4, 2
        order, by, of = _sorted(*_routing(tokens, experts, topk), experts, unit)
        rows, token = len(order), (order & 0xFFFFFF).long()
        real, expert = token < tokens, of.long().repeat_interleave(unit)
        common = dict(  # noqa: C408
            sorted_expert_ids=of, cumsum_tensor=torch.tensor([rows], dtype=torch.int32), BM=unit, NE=experts,
            D_HIDDEN=hidden, D_INTER=inner, topk=topk,
        )  # fmt: skip
        if not second:
            a, a_scale = random_mxfp4(tokens, hidden, 124, 126)
            w, w_scale = random_mxfp4(experts * 2 * inner, hidden, 119, 121)
            sorted_scale = torch.zeros(rows, hidden // 32, dtype=torch.uint8)
            sorted_scale[real] = a_scale[token[real]]
            codes = torch.zeros(rows, inner // 2, dtype=torch.uint8)
            scales = torch.zeros(rows * inner // 32, dtype=torch.uint8)
            flydsl_mxfp4_gemm1(
                a_quant=a, a_scale_sorted_shuffled=shuffled_scales(sorted_scale), w1_u8=shuffled_rows(w),
                w1_scale_u8=shuffled_scales(w_scale), m_indices=token.to(torch.int32), inter_sorted_quant=codes,
                inter_sorted_shuffled_scale=scales, hidden_states=torch.zeros(tokens, hidden, dtype=torch.bfloat16),
                n_tokens=tokens, use_nt=False, inline_quant=False, **common,
            )  # fmt: skip
            straight = scales.view(rows // 32, inner // 32 // 8, 4, 16, 2, 2).permute(0, 5, 3, 1, 4, 2)
            straight = straight.reshape(rows, inner // 32)
            both = torch.einsum(
                "rk,rnk->rn",
                wide(a, a_scale)[token[real]],
                wide(w, w_scale).view(experts, 2 * inner, hidden)[expert[real]],
            )
            wanted = torch.nn.functional.silu(both[:, :inner]) * both[:, inner:]
            found = wide(codes, straight)[real]
            # E2M1 rounds by a fifth at most, and what is above 6 becomes 6.
            step = torch.exp2(straight[real].double() - 127).repeat_interleave(32, -1)
            compare(found, wanted, absolute=0.26 * step + 1e-3, relative=0.26)
            return cosine(found, wanted, 0.98)
        a, a_scale = random_mxfp4(rows, inner, 124, 126)
        w, w_scale = random_mxfp4(experts * hidden, inner, 119, 121)
        out = torch.zeros(tokens, hidden, dtype=torch.bfloat16)
        flydsl_mxfp4_gemm2(
            inter_sorted_quant=a, inter_sorted_shuffled_scale=shuffled_scales(a_scale), w2_u8=shuffled_rows(w),
            w2_scale_u8=shuffled_scales(w_scale), sorted_token_ids=order, sorted_weights=by, flat_out=out.view(-1),
            M_logical=tokens, max_sorted=rows, use_nt=False, epilog="atomic", **common,
        )  # fmt: skip
        each = torch.einsum("rk,rnk->rn", wide(a, a_scale), wide(w, w_scale).view(experts, hidden, inner)[expert])
        wanted = torch.zeros(tokens, hidden, dtype=torch.float64)
        wanted.index_add_(0, token[real], (each * by[:, None].double())[real])
        return compare(out, wanted, absolute=0.02, relative=0.02)

    return run


# Waves read sums of their neighbours; then each stores something else in their place.
_SORTING_BARRIER = (Insert("kernels.moe.moe_sorting_kernel", "de5aa0182e55", 1835, "gpu.barrier()"),)

CASES = [
    Case("topk_gating_softmax", "8 of 256 experts", _gating(256, 8)),
    Case("topk_gating_softmax_128", "4 of 128 experts", _gating(128, 4)),
    Case("moe_sorting", "16 tokens, 256 experts, one launch", _sorting(16, 256, 8)),
    Case("moe_sorting_1", "1 token", _sorting(1, 256, 8)),
    Case(
        "moe_sorting_phases", "512 tokens: several launches", _sorting(512, 256, 8), alarm="race", mend=_SORTING_BARRIER
    ),
    Case("mxfp4_moe_gemm1", "24 tokens, 2 of 4 experts", _mxfp4(False)),
    Case("mxfp4_moe_gemm2", "24 tokens, 2 of 4 experts", _mxfp4(True)),
    Case("mxfp4_moe_gemm1_64", "units of 64 rows", _mxfp4(False, 64)),
    Case("mxfp4_moe_gemm2_64", "units of 64 rows", _mxfp4(True, 64)),
]
