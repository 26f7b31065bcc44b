"""Attention: paged decode, MLA decode, sliding window, flash attention."""

from __future__ import annotations

import types
from contextlib import nullcontext

import torch

from tests.emulator.gfx950.public.cases import Case, compare, cosine
from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.mend import Insert

FP8 = torch.float8_e4m3fn


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
    """fp64. q: [rows, heads, d]; k, v: [keys, kv_heads, d]; keep: bool [rows, keys]. [rows, heads, d]."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~keep, -torch.inf).softmax(-1), v)


def _causal(rows: int, keys: int) -> torch.Tensor:
    """The last row sees every key."""
    return torch.arange(keys) <= torch.arange(rows)[:, None] + keys - rows


def _fp8_error(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
    """What rounding the probabilities to FP8 may do: half a unit in the last of four bits, or of the least number."""
    size = v.double().abs()
    return _attention(q, k, size, keep, scale) / 16 + 2.0**-10 * size.sum(0).amax(0)


def _pa_decode(page: int, splits: int, rows: int, per_token: bool, transposed: bool, group: int = 8, d: int = 128):
    """FP8 pages; queries and probabilities become FP8 inside, so the result has about two digits."""

    def run(_: Hip) -> str:
        from kernels.attention.pa_decode_tile import pa_decode_tile

        lengths = torch.tensor([389, 77, 256], dtype=torch.int32)
        kv_heads, sequences = 1, len(lengths)
        per_sequence = -(-int(lengths.max()) // page)
        pages = sequences * per_sequence + 3
        table = torch.randperm(pages)[: sequences * per_sequence].reshape(sequences, -1).to(torch.int32)
        k, v = (torch.randn(pages, page, kv_heads, d).to(FP8) for _ in "kv")
        if per_token:
            k_scale, v_scale = (torch.rand(pages, kv_heads, page) * 0.02 + 0.01 for _ in "kv")
        else:
            k_scale, v_scale = torch.tensor([0.02]), torch.tensor([0.03])
        q = torch.randn(sequences * rows, kv_heads * group, d).bfloat16()
        out = torch.full_like(q, float("nan"))
        keys = k.view(torch.uint8).permute(0, 2, 3, 1).reshape(pages, kv_heads, d // 16, 16, page)
        values = v.view(torch.uint8).permute(0, 2, 3, 1).contiguous()
        if transposed:
            values = values.reshape(pages, kv_heads, d, page // 16, 16).permute(0, 1, 3, 2, 4).contiguous()
        pa_decode_tile(
            out,
            q,
            keys.permute(0, 1, 2, 4, 3).contiguous().view(FP8),
            values.view(FP8),
            table,
            lengths,
            k_scale,
            v_scale,
            num_partitions=splits,
        )
        expected = []
        for i, length in enumerate(lengths.tolist()):
            taken = table[i, : -(-length // page)].long()
            wide = [
                (x[taken].double() * (s[taken].permute(0, 2, 1)[..., None].double() if per_token else s.double()))
                .reshape(-1, kv_heads, d)[:length]
                for x, s in ((k, k_scale), (v, v_scale))
            ]  # fmt: skip
            expected.append(_attention(q[i * rows : (i + 1) * rows], *wide, _causal(rows, length), d**-0.5))
        wanted = torch.cat(expected)
        return f"{compare(out, wanted, absolute=0.1 * wanted.abs().max().item())}, {cosine(out, wanted, 0.998)}"

    return run


def _pa_persistent(rows: int, per_token: bool, window: int = 0):
    """Pages of 1,024 keys: pieces of work that a kernel divides, their sums and the reduction; or a window."""

    def run(_: Hip) -> str:
        from kernels.attention.pa_decode_fp8 import get_pa_metadata, get_recommended_splits, pa_decode_ps_launch

        lengths = torch.tensor([1027, 300, 2100], dtype=torch.int32)
        heads, d, page, many = 16, 128, 1024, 3
        used = -(-lengths // page)
        pages = int(used.sum()) + 2
        places = torch.randperm(pages)[: int(used.sum())].to(torch.int32)
        starts = torch.cat([torch.zeros(1, dtype=torch.int32), used.cumsum(0).to(torch.int32)])
        table = torch.zeros(many, int(used.max()), dtype=torch.int32)
        for i in range(many):
            table[i, : used[i]] = places[starts[i] : starts[i + 1]]
        k, v = (torch.randn(pages, page, 1, d).to(FP8) for _ in "kv")
        if per_token:
            k_scale, v_scale = (torch.rand(pages, 1, page, 1) * 0.02 + 0.01 for _ in "kv")
        else:
            k_scale, v_scale = torch.tensor([0.02]), torch.tensor([0.03])
        q = torch.randn(many * rows, heads, d).bfloat16()
        out = torch.full_like(q, float("nan"))
        keys = k.view(torch.uint8).permute(0, 2, 3, 1).reshape(pages, 1, d // 16, 16, page).permute(0, 1, 2, 4, 3)
        values = v.view(torch.uint8).permute(0, 2, 3, 1).reshape(pages, 1, d, page // 16, 16).permute(0, 1, 3, 2, 4)
        keys, values = keys.contiguous().view(FP8), values.contiguous().view(FP8)
        metadata = None if window else get_pa_metadata(q, keys, lengths, starts, heads, 1)
        pa_decode_ps_launch(
            out, q, keys, values, lengths, places, starts, d**-0.5, k_scale, v_scale, sliding_window=window,
            metadata=metadata, block_tables=table,
            max_context_partition_num=get_recommended_splits(many, 1, sliding_window=window, query_length=rows),
        )  # fmt: skip
        expected = []
        for i, length in enumerate(lengths.tolist()):
            taken = table[i, : used[i]].long()
            wide = [
                (x[taken].double() * (s[taken].permute(0, 2, 1, 3).double() if per_token else s.double()))
                .reshape(-1, 1, d)[:length]
                for x, s in ((k, k_scale), (v, v_scale))
            ]  # fmt: skip
            keep = _causal(rows, length)
            if window:
                keep &= torch.arange(length) >= torch.arange(rows)[:, None] + length - rows - window
            expected.append(_attention(q[i * rows : (i + 1) * rows], *wide, keep, d**-0.5))
        wanted = torch.cat(expected)
        return f"{compare(out, wanted, absolute=0.1 * wanted.abs().max().item())}, {cosine(out, wanted, 0.998)}"

    return run


def _mla_decode(lengths: list[int], spans: list[tuple[int, int, int]], together: bool = False, exact: bool = False):
    def run(_: Hip) -> str:
        import kernels.attention.mla_fwd_decode_m16x8_fp8_fp8 as mla

        if exact:
            mla.CompilationContext = types.SimpleNamespace(compile_hints=lambda _: nullcontext())
        heads, wide, d = 128, 576, 512
        tokens = sum(lengths)
        pages = torch.randperm(tokens + 5)[:tokens].to(torch.int32)
        kv, q = torch.randn(tokens + 5, wide).to(FP8), torch.randn(len(lengths) * heads, wide).to(FP8)
        # Batch, place of the partial result, queries from and to, keys from and to, and two words that nobody reads.
        work = [[batch, i, batch, batch + 1, first, last, 0, 0] for i, (batch, first, last) in enumerate(spans)]
        starts = list(range(0, len(spans) + 1, 2 if together else 1))  # pieces of work of each workgroup
        final = torch.zeros(len(lengths) * heads, d, dtype=torch.bfloat16)
        many = len(spans)
        part, lse = torch.full((many * heads, d), float("nan")), torch.full((many * heads,), float("nan"))
        mla.launch_mla_fwd_decode_m16x8_fp8_fp8(
            q,
            kv,
            pages,
            torch.tensor(starts, dtype=torch.int32),
            torch.tensor(work, dtype=torch.int32).view(-1),
            final,
            part,
            lse,
            wide**-0.5,
            len(starts) - 1,
            163840 // mla.OCCUPANCY,
            stream=torch.cuda.current_stream(),
        )
        pieces, sums = part.view(many, heads, d), lse.view(many, heads)
        batch = torch.tensor([span[0] for span in spans])
        out = torch.cat(
            [
                (pieces[batch == i] * sums[batch == i].softmax(0)[..., None]).sum(0)  # every piece has a partial result
                for i in range(len(lengths))
            ]
        )
        first, expected, allowed = 0, [], []
        for i, length in enumerate(lengths):
            keys = kv[pages[first : first + length].long()][:, None]
            rows = q[i * heads : (i + 1) * heads][None]
            keep = torch.ones(1, length, dtype=torch.bool)
            expected.append(_attention(rows, keys, keys[..., :d], keep, wide**-0.5)[0])
            allowed.append(_fp8_error(rows, keys, keys[..., :d], keep, wide**-0.5)[0])
            first += length
        wanted = torch.cat(expected)
        return f"{compare(out, wanted, absolute=torch.cat(allowed))}, {cosine(out, wanted, 0.998)}"

    return run


def _sliding_window(left: int, right: int, n: int = 512):
    def run(_: Hip) -> str:
        import flydsl.expr as fx
        from kernels.attention.swa_gfx950 import build_gqa_attn

        heads, kv_heads, d = 32, 16, 128
        q, out = torch.randn(n, heads, d).bfloat16(), torch.full((n, heads, d), float("nan"), dtype=torch.bfloat16)
        k, v = (torch.randn(n, kv_heads, d).bfloat16() for _ in "kv")
        launch = build_gqa_attn(ATTN_B=1, ATTN_H=heads, ATTN_H_KV=kv_heads, ATTN_D=d, sliding_window=(left, right))
        strides = heads * d, kv_heads * d, kv_heads * d, heads * d
        launch(*(x.reshape(-1) for x in (q, k, v, out)), *strides, n, n, fx.Stream(None))
        i, j = torch.arange(n)[:, None], torch.arange(n)
        return compare(
            out, _attention(q, k, v, (j >= i - left) & (j <= i + right), d**-0.5), absolute=0.02, relative=0.01
        )

    return run


def _flash(causal: bool, rows: int = 384, keys: int | None = None, d: int = 128, dtype=torch.bfloat16, **options):
    def run(_: Hip) -> str:
        from kernels.attention.flash_attn_interface import flydsl_flash_attn_func

        heads, kv_heads, batch, many = 2, 1, 1, keys or rows
        q = torch.randn(batch, rows, heads, d).to(dtype)
        k, v = (torch.randn(batch, many, kv_heads, d).to(dtype) for _ in "kv")
        out = flydsl_flash_attn_func(q, k, v, causal=causal, num_kv_heads=kv_heads, **options)
        keep = _causal(rows, many) if causal else torch.ones(rows, many, dtype=torch.bool)
        return compare(out[0], _attention(q[0], k[0], v[0], keep, d**-0.5), absolute=0.02, relative=0.01)

    return run


def _flash_varlen(_: Hip) -> str:
    from kernels.attention.flash_attn_interface import flydsl_flash_attn_func

    lengths, heads, kv_heads, d = [300, 41, 128], 2, 1, 128
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    q = torch.randn(sum(lengths), heads, d).bfloat16()
    k, v = (torch.randn(sum(lengths), kv_heads, d).bfloat16() for _ in "kv")
    out = flydsl_flash_attn_func(
        q, k, v, causal=True, num_kv_heads=kv_heads, cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=300,
        cross_seqlen=False,
    )  # fmt: skip
    spans = [slice(a, b) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    expected = torch.cat(
        [_attention(q[s], k[s], v[s], _causal(s.stop - s.start, s.stop - s.start), d**-0.5) for s in spans]
    )
    return compare(out, expected, absolute=0.02, relative=0.01)


def _flash_fp8(_: Hip) -> str:
    from kernels.attention.flash_attn_interface import flydsl_flash_attn_func

    rows, heads, d = 512, 2, 128
    q, k, v = (torch.randn(1, rows, heads, d).to(FP8) for _ in "qkv")
    scales = [torch.tensor([x]) for x in (0.5, 0.75, 1.5)]
    out = flydsl_flash_attn_func(
        q, k, v, causal=True, num_kv_heads=heads, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2]
    )
    wide = [x[0].double() * s.double() for x, s in zip((q, k, v), scales, strict=True)]
    wanted = _attention(*wide, _causal(rows, rows), d**-0.5)
    return f"{compare(out[0], wanted, absolute=0.1 * wanted.abs().max().item())}, {cosine(out[0], wanted, 0.998)}"


_MLA_WHOLE = [192, 192, 64], [(0, 0, 192), (1, 192, 320), (1, 320, 384), (2, 384, 448)]
_MLA_PARTS = [130, 96, 63], [(0, 0, 130), (1, 130, 194), (1, 194, 226), (2, 226, 289)]
"""Lengths, and the pieces of work: sequence, keys from and to."""

# The first pages of values are read from the LDS, and those of the next tile stored there.
_PA_BARRIER = (Insert("kernels.attention.pa_decode_tile", "2ccc9536b406", 507, "gpu.barrier()"),)
# Scales of queries are read from the LDS, and the highest scores stored there.
_WINDOW_BARRIER = (Insert("kernels.attention.pa_decode_swa", "3e0d5b5809b4", 498, "gpu.barrier()"),)
# The values of a piece of work are read to its end, and the next piece loads its keys there.
_MLA_BARRIER = (
    Insert("kernels.attention.mla_fwd_decode_m16x8_fp8_fp8", "272c0f04ab1c", 1590, "_barrier(vmcnt=0, lgkmcnt=0)"),
)
# The compiler does not wait for what inline assembly reads.
_FLASH_WAIT = (
    Insert(
        "kernels.attention.flash_attn_utils", "cad2820d1599", 117,
        '"ds_read_b64_tr_b8 $0, $1 offset:%d\\ns_waitcnt lgkmcnt(0)" % imm,', instead=True,
    ),
)  # fmt: skip

CASES = [
    Case("pa_decode", "pages of 64, two splits and their reduction, FP8", _pa_decode(64, 2, 1, False, True)),
    Case("pa_decode_16", "pages of 16, scales of tokens, values as they are", _pa_decode(16, 2, 1, True, False)),
    Case("pa_decode_mtp", "two queries, pages of 64, scales of tokens", _pa_decode(64, 2, 2, True, True)),
    Case("pa_decode_mtp_3", "three queries: two tiles of rows", _pa_decode(64, 2, 3, True, True)),
    Case(
        "pa_decode_long",
        "two tiles of keys in one split",
        _pa_decode(64, 1, 1, False, True),
        alarm="race",
        mend=_PA_BARRIER,
    ),
    Case("pa_persistent", "pages of 1024, work divided on the device", _pa_persistent(1, False)),
    Case("pa_persistent_mtp", "four queries, scales of tokens", _pa_persistent(4, True)),
    Case(
        "pa_window",
        "pages of 1024, window of 511 keys before",
        _pa_persistent(2, True, 511),
        alarm="race",
        mend=_WINDOW_BARRIER,
    ),
    Case(
        "pa_window_fused",
        "window of 127, one partition",
        _pa_persistent(1, True, 127),
        alarm="race",
        mend=_WINDOW_BARRIER,
    ),
    Case("mla_decode_fp8", "DeepSeek's 128 heads, a sequence in two pieces, whole tiles", _mla_decode(*_MLA_WHOLE)),
    Case(
        "mla_decode_fp8_tail", "parts of tiles, compiled without fast arithmetic", _mla_decode(*_MLA_PARTS, exact=True)
    ),
    Case("mla_decode_fp8_fast_tail", "parts of tiles", _mla_decode(*_MLA_PARTS), alarm="wrong result"),
    Case(
        "mla_decode_fp8_two",
        "two pieces of work a workgroup",
        _mla_decode(*_MLA_WHOLE, together=True),
        alarm="race",
        mend=_MLA_BARRIER,
    ),
    Case("swa", "window of 128 keys before", _sliding_window(128, 0)),
    Case("swa_both", "64 keys before and after", _sliding_window(64, 64)),
    Case("flash_attn", "dual wave, causal, 384 rows, grouped", _flash(True)),
    Case("flash_attn_full", "dual wave, 320 rows, d 64, fp16", _flash(False, 320, d=64, dtype=torch.float16)),
    Case("flash_attn_cross", "300 rows, 448 keys, causal", _flash(True, 300, 448)),
    Case("flash_attn_splitk", "two splits and their combination", _flash(True, 512, num_kv_splits=2)),
    Case("flash_attn_generic", "short: the kernel for all CDNA chips", _flash(True, 128)),
    Case("flash_attn_varlen", "300, 41 and 128 rows", _flash_varlen),
    Case("flash_attn_fp8", "512 rows", _flash_fp8, alarm="missing wait", mend=_FLASH_WAIT),
]
