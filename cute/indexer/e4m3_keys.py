"""NVFP4 keys as E4M3: eight codes with the scale of their group, rounded once, saturating.

A product of E2M1 and E4M3 is exact in fp16, so the way over fp16 rounds once too and gives the same bits.
"""

from cutlass import Uint32
from msa_ops.cute.common.asm import asm


def scale_of(words, group: int):
    """The scale of group 0 to 7, from two words of scales, in each byte of a word."""
    return asm(f"prmt.b32 $0, $1, $1, {0x1111 * (group % 4)};", [Uint32], [words[group // 4]], pure=True)


def by_qmul4(codes: Uint32, scale: Uint32):
    """Two words of E4M3 from eight codes; `scale` in each byte."""
    multiply = "mul.rn.satfinite.e4m3x4.e2m1x4.e4m3x4"
    return asm(
        f"{{ .reg .b16 low, high; mov.b32 {{low, high}}, $2; {multiply} $0, low, $3; {multiply} $1, high, $3; }}",
        [Uint32, Uint32],
        [codes, scale],
        pure=True,
    )


def half_scale(scale: Uint32) -> Uint32:
    """A scale that is in each byte, as a pair of fp16."""
    text = "{ .reg .b16 low, high; mov.b32 {low, high}, $1; cvt.rn.f16x2.e4m3x2 $0, low; }"
    return asm(text, [Uint32], [scale], pure=True)


def by_fp16(codes: Uint32, scale: Uint32):
    """As `by_qmul4`; `scale` as a pair of fp16."""
    text = ["{ .reg .b8 c<4>; .reg .b32 h<4>; .reg .b16 e<4>; mov.b32 {c0, c1, c2, c3}, $2;"]
    for i in range(4):
        text.append(f"cvt.rn.f16x2.e2m1x2 h{i}, c{i}; mul.rn.f16x2 h{i}, h{i}, $3;")
        text.append(f"cvt.rn.satfinite.e4m3x2.f16x2 e{i}, h{i};")
    text.append("mov.b32 $0, {e0, e1}; mov.b32 $1, {e2, e3}; }")
    return asm(" ".join(text), [Uint32, Uint32], [codes, scale], pure=True)
