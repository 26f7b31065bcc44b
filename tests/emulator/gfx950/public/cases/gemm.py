"""Matrix products."""

from __future__ import annotations

import torch

from tests.emulator.gfx950.public.cases import Case, compare, cosine
from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.mend import Insert

FP8 = torch.float8_e4m3fn
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def random_mxfp4(rows: int, k: int, low: int = 124, high: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [rows, k / 2], the even one in the lower half, and E8M0 scales [rows, k / 32], of bytes low to high."""
    codes = torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8)
    return codes, torch.randint(low, high + 1, (rows, k // 32), dtype=torch.uint8)


def wide(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """[rows, k] in fp64."""
    numbers = E2M1[torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()].double()
    return (numbers.unflatten(-1, (-1, 32)) * torch.exp2(scales.double() - 127)[..., None]).flatten(-2)


def shuffled_rows(x: torch.Tensor) -> torch.Tensor:
    """Tiles of 16 rows and 16 bytes one after the other, along a row of tiles first."""
    return x.unflatten(-1, (-1, 16)).unflatten(-3, (-1, 16)).transpose(-3, -2).contiguous()


def shuffled_scales(x: torch.Tensor) -> torch.Tensor:
    """Of 32 rows and 8 scales each: byte 0 of a dword the row, byte 1 16 rows further, bytes 2 and 3 four scales on."""
    x = torch.nn.functional.pad(x, (0, -x.shape[1] % 8, 0, -x.shape[0] % 32))
    parts = x.reshape(x.shape[0] // 32, 2, 16, x.shape[1] // 8, 2, 4)
    return parts.permute(0, 3, 5, 2, 4, 1).contiguous().flatten()


def _fp4(_: Hip) -> str:
    from kernels.gemm.fp4_gemm_4wave import compile_fp4_gemm_4w

    m, n, k = 256, 256, 1024
    (a, a_scale), (b, b_scale) = random_mxfp4(m, k), random_mxfp4(n, k)
    out = torch.full((m, n), float("nan"), dtype=torch.bfloat16)
    compile_fp4_gemm_4w(K=k, MN=(m, n))(
        a.view(-1),
        shuffled_rows(b).view(-1),
        out.view(-1),
        shuffled_scales(a_scale),
        shuffled_scales(b_scale),
        m,
        n,
        torch.cuda.current_stream(),
    )
    return compare(out, wide(a, a_scale) @ wide(b, b_scale).T, absolute=0.01, relative=0.01)


def _fp8(waves: int, shuffled: bool):
    def run(_: Hip) -> str:
        from kernels.gemm import fp8_gemm_4wave, fp8_gemm_8wave

        m, n, k = 256, 256, 512
        make = fp8_gemm_4wave.compile_fp8_gemm_4w if waves == 4 else fp8_gemm_8wave.compile_fp8_gemm_8w
        a, b = torch.randn(m, k).to(FP8), torch.randn(n, k).to(FP8)
        a_scale, b_scale = torch.rand(m), torch.rand(n)
        out = torch.full((m, n), float("nan"), dtype=torch.bfloat16)
        b_bytes = shuffled_rows(b.view(torch.uint8)) if shuffled else b.view(torch.uint8)
        make(K=k, BLOCK_M=256, BLOCK_N=256, b_preshuffled=shuffled)(
            a.view(torch.int8).view(-1),
            b_bytes.view(torch.int8).view(-1),
            out.view(-1),
            a_scale,
            b_scale,
            m,
            n,
            torch.cuda.current_stream(),
        )
        wanted = (a.double() @ b.double().T) * a_scale[:, None].double() * b_scale.double()
        return compare(out, wanted, absolute=0.02, relative=0.01)

    return run


SIX_BITS = torch.tensor([m / 8 if e == 0 else 2.0 ** (e - 1) * (1 + m / 8) for e in range(4) for m in range(8)])
"""The numbers of E2M3, by code; the sign is bit 5."""


def _packed_six_bits(codes: torch.Tensor) -> torch.Tensor:
    """Codes [rows, k], uint8, to bytes [rows, k]: 32 codes in 24 bytes, then 8 that nobody reads."""
    bits = (codes.long()[..., None] >> torch.arange(6) & 1).unflatten(1, (-1, 32)).flatten(2)
    packed = (bits.unflatten(-1, (24, 8)) << torch.arange(8)).sum(-1).to(torch.uint8)
    return torch.nn.functional.pad(packed, (0, 8)).flatten(1)


def _mxfp4_preshuffle(a_format: str, b_format: str = "fp4", tiles: tuple[int, int, int] = (32, 128, 256)):
    """A in four, six or eight bits, all with E8M0 scales."""

    def operand(name: str, rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Bytes, scales, numbers."""
        scales = torch.randint(124, 129, (rows, k // 32), dtype=torch.uint8)
        factor = torch.exp2(scales.double() - 127).repeat_interleave(32, -1)
        if name == "fp4":
            codes, scales = random_mxfp4(rows, k)
            return codes, scales, wide(codes, scales)
        if name == "fp6":
            codes = torch.randint(0, 64, (rows, k), dtype=torch.uint8)
            numbers = SIX_BITS[(codes & 31).long()].double() * torch.where(codes >= 32, -1, 1)
            return _packed_six_bits(codes), scales, numbers * factor
        numbers = torch.randn(rows, k).to(FP8)
        return numbers.view(torch.uint8), scales, numbers.double() * factor

    def run(_: Hip) -> str:
        import flydsl.compiler as flyc
        import flydsl.expr as fx
        from kernels.gemm.mxfp4_preshuffle import launch_gemm

        m, n, k = 40, 256, 1024
        (a, a_scale, a_wide), (b, b_scale, b_wide) = operand(a_format, m, k), operand(b_format, n, k)
        out = torch.full((m, n), float("nan"), dtype=torch.bfloat16)
        arguments = out, a, shuffled_rows(b), shuffled_scales(a_scale), shuffled_scales(b_scale)
        launch_gemm(
            *(flyc.from_c_void_p(fx.Uint8, x.data_ptr()) for x in arguments), m, n, torch.cuda.current_stream(),
            n, k, *tiles, a_format, "bf16", b_format, 1, *[-1] * 6, 0, 0,
        )  # fmt: skip
        wanted = a_wide @ b_wide.T
        return compare(out, wanted, absolute=2.0**-8 * wanted.abs().max().item(), relative=0.01)

    return run


def _a16w16(split: int, dtype: torch.dtype):
    def run(_: Hip) -> str:
        from kernels.gemm.gemm_a16w16_gfx950 import gemm_a16w16

        m, n, k = 100, 256, 512
        a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
        bias, out = torch.randn(n).to(dtype), torch.full((m, n), float("nan"), dtype=dtype)
        options = {
            "block_m": 64,
            "block_n": 64,
            "block_k": 64,
            "stages": 2,
            "m_waves": 2,
            "n_waves": 2,
            "k_waves": 1,
            "group_m": 1,
        }
        gemm_a16w16(
            a, b.T, out, bias=bias, layout="nt",
            user_kwargs=options | {"use_half_tile_interleaved": False, "split_k": split},
        )  # fmt: skip
        wanted = a.double() @ b.double().T + bias.double()
        compare(out, wanted, absolute=0.5 * split, relative=0.02 * split)
        return cosine(out, wanted, 0.9999)

    return run


def _conv2d(size: int, channels: int):
    """The same pipeline as the FP8 product of eight waves, in a convolution."""

    def run(_: Hip) -> str:
        from kernels.conv.conv3d_implicit_fp8 import conv3d_implicit_fp8

        x, weight = torch.randn(1, channels, 16, 16).to(FP8), torch.randn(128, channels, size, size).to(FP8)
        out = conv3d_implicit_fp8(x, weight, padding=size // 2)
        wanted = torch.nn.functional.conv2d(x.double(), weight.double(), padding=size // 2)
        return compare(out, wanted, absolute=0.01 * wanted.abs().max().item(), relative=0.01)

    return run


# The tile that the next line reads was asked for by loads 12 to 15 of 35.
_FP4_WAIT = (Insert("kernels.gemm.fp4_gemm_4wave", "bdb437441e53", 784, "wait_barrier(20)"),)
# Its matrix instruction is inline assembly, for which LLVM keeps no wait states; and a wave is let through while
# others' reads of the tile that is loaded next are on their way.
_FP8_WAITS = (
    Insert(
        "kernels.gemm.fp8_gemm_utils", "2d70a258a8d0", 205,
        'asm_string=f"s_waitcnt vmcnt({count}) lgkmcnt(0)\\ns_barrier",', instead=True,
    ),
    Insert(
        "kernels.gemm.fp8_gemm_4wave", "7c1b1df79e09", 55,
        '"s_nop 1\\nv_mfma_f32_16x16x128_f8f6f4 $0, $1, $2, $0\\ns_nop 11",', instead=True,
    ),
)  # fmt: skip
# The same in the loop, and waits for the last tiles of B and A before they are read.
_LDS = "rocdl.s_waitcnt(0xC07F)"  # lgkmcnt(0)
_FP8_8_WAITS = tuple(
    Insert("kernels.gemm.fp8_gemm_8wave", "c9568cb24681", line, code, instead=line > 300)
    for line, code in (
        (274, _LDS),
        (280, _LDS),
        (286, _LDS),
        (318, "wait_barrier(2 * N_LDS_STEPS_A + N_LDS_STEPS_B)"),
        (323, "wait_barrier(N_LDS_STEPS_A + N_LDS_STEPS_B)"),
    )
)
_CONV_WAITS = tuple(
    Insert("kernels.conv.conv3d_implicit_fp8", "fcf89a60874b", line, code, instead=line > 560)
    for line, code in (
        (539, _LDS.replace("rocdl", "fx.rocdl")),
        (545, _LDS.replace("rocdl", "fx.rocdl")),
        (551, _LDS.replace("rocdl", "fx.rocdl")),
        (579, "wait_barrier(2 * N_LDS_STEPS_A + N_LDS_STEPS_B)"),
        (584, "wait_barrier(N_LDS_STEPS_A + N_LDS_STEPS_B)"),
    )
)

CASES = [
    Case("fp4_gemm_4wave", "256 x 256 x 1024, E8M0 scales", _fp4, alarm=("missing wait", "race"), mend=_FP4_WAIT),
    Case("fp8_gemm_4wave", "256 x 256 x 512, scales of rows", _fp8(4, False), alarm="wait states", mend=_FP8_WAITS),
    Case("fp8_gemm_4wave_shuffled", "the same with B in tiles", _fp8(4, True), alarm="race", mend=_FP8_WAITS),
    Case("fp8_gemm_8wave", "256 x 256 x 512, scales of rows", _fp8(8, False), alarm="race", mend=_FP8_8_WAITS),
    Case(
        "conv2d_fp8",
        "3 x 3, 128 channels of 16 x 16",
        _conv2d(3, 128),
        alarm=("race", "missing wait"),
        mend=_CONV_WAITS,
    ),
    Case("conv2d_fp8_1", "1 x 1, 512 channels", _conv2d(1, 512), alarm=("race", "missing wait"), mend=_CONV_WAITS),
    Case("mxfp4_preshuffle", "A and B in MXFP4, 40 x 256 x 1024", _mxfp4_preshuffle("fp4")),
    Case("mxfp4_preshuffle_fp6", "A in MXFP6", _mxfp4_preshuffle("fp6")),
    Case("mxfp4_preshuffle_fp8", "A in MXFP8", _mxfp4_preshuffle("fp8")),
    Case("mxfp4_preshuffle_fp8_both", "A and B in MXFP8", _mxfp4_preshuffle("fp8", "fp8")),
    Case("a16w16_gemm", "100 x 256 x 512, bf16, bias", _a16w16(1, torch.bfloat16)),
    Case("a16w16_gemm_splitk", "fp16, k in two parts that workgroups add", _a16w16(2, torch.float16)),
]
