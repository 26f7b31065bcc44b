"""Where the formats agree with torchao, compressed-tensors and ml_dtypes, measured.

`python -m tests.formats.agreements` rewrites the table in docs/formats.md; a test fails if it has gone stale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from compressed_tensors.compressors.mx_utils import compress_mx_scale, decompress_mx_scale
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4, unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from torch import Tensor
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.kernels import f4_unpacked_to_f32, f32_to_f4_unpacked, pack_uint4
from torchao.prototype.mx_formats.mx_tensor import get_fp_scale, to_dtype, to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, nvfp4_quantize
from torchao.prototype.mx_formats.utils import to_blocked

from msa_ops.formats import e2m1, e4m3, e8m0, mxfp4, mxfp8, nvfp4, scale_layout
from msa_ops.formats.scale_layout import ScaleLayout

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"
BEGIN, END = "<!-- agreements: begin -->", "<!-- agreements: end -->"

AO = "torchao"
CT = "compressed-tensors"
ML = "ml_dtypes"

CODES = torch.arange(16, dtype=torch.uint8)
BYTES = torch.arange(256, dtype=torch.uint8)
MX = {"MXFP8": (mxfp8, torch.float8_e4m3fn), "MXFP4": (mxfp4, torch.float4_e2m1fn_x2)}


def equal(ours: Tensor, theirs: Tensor) -> str:
    """Compares bits; any NaN equals any NaN."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    if ours.is_floating_point():
        both = ours.isnan() & theirs.isnan()
        ours, theirs = (torch.where(both, 0, t.float().view(torch.int32)) for t in (ours, theirs))
    wrong = int((ours != theirs).sum())
    return f"equal ({ours.numel():,})" if not wrong else f"{wrong:,} of {ours.numel():,} differ"


def byte_list(data: Tensor) -> str:
    return " ".join(f"{b:02X}" for b in data.flatten().view(torch.uint8).tolist())


def against(ours: object, theirs: object) -> str:
    return f"ours {ours}, theirs {theirs}"


def ordinary_values(columns: int) -> Tensor:
    """[128, columns] up to 4 x 2^-3 .. 2^3 by row; from integers, so that every machine has the same bits."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-(2**20), 2**20, (128, columns), generator=generator) * 2.0**-18
    return x * torch.exp2(torch.randint(-3, 4, (128, 1), generator=generator))


def decision_groups() -> Tensor:
    """[126, 64]: four groups for each E4M3 scale s; 6 s, then 0.25 .. 5 times s with both fp32 neighbours."""
    scales = e4m3.from_bytes(BYTES[1:127]).unsqueeze(1)
    points = torch.tensor([point for point, _ in e2m1.DECISION_POINTS])
    middle = scales * torch.cat([points, points[:3], points[4:], points[2:4]])[:15]
    below, above = torch.nextafter(middle, torch.zeros(())), torch.nextafter(middle, torch.tensor(1e9))
    return torch.cat([6 * scales, below, 6 * scales, middle, 6 * scales, above, 6 * scales, -middle], 1)


def without_minus_zero(codes: Tensor) -> Tensor:
    unpacked = e2m1.unpack(codes)
    return e2m1.pack(torch.where(unpacked == 8, 0, unpacked))


def boundary_magnitudes() -> Tensor:
    """Magnitudes around the points where E8M0 rules change, with fp32 neighbours, for exponents -110 to 119."""
    mantissas = torch.tensor([1, 1.25, 1.5, 1.75, 1.875, 1.9375])
    x = (mantissas * torch.exp2(torch.arange(-110.0, 120.0)).unsqueeze(1)).flatten()
    return torch.cat([torch.nextafter(x, torch.zeros(())), x, torch.nextafter(x, torch.tensor(torch.inf))])


def groups_with(amax: Tensor) -> Tensor:
    """[n, 32] groups that have this largest magnitude."""
    return torch.cat([amax.unsqueeze(1), torch.zeros(amax.numel(), 31)], 1)


# --- the others, brought to our argument and result forms ---


def ao_mx(x: Tensor, name: str, rule: str) -> tuple[Tensor, Tensor]:
    scales, data = to_mx(x.contiguous(), MX[name][1], 32, ScaleCalculationMode(rule))
    return data, scales.view(torch.uint8)


def ct_scheme(name: str) -> QuantizationScheme:
    return QuantizationScheme(targets=["Linear"], weights=PRESET_SCHEMES[name]["weights"])


def ct_qparams(x: Tensor, name: str, group: int) -> Tensor:
    """fp32 scales [..., n / group] as their observer would set them, with a global scale of 1 where there is one."""
    groups = x.unflatten(-1, (-1, group))
    scale = torch.ones(1) if name == "NVFP4" else None
    return calculate_qparams(groups.amin(-1), groups.amax(-1), PRESET_SCHEMES[name]["weights"], global_scale=scale)[0]


def ct_nvfp4(x: Tensor) -> tuple[Tensor, Tensor]:
    scales = ct_qparams(x, "NVFP4", 16)
    return quantize_and_pack_fp4(x, scales, global_scale=torch.ones(1)), e4m3.to_bytes(scales)


def ct_mx_scales(amax: Tensor, name: str) -> Tensor:
    return compress_mx_scale(ct_qparams(groups_with(amax), name, 32), torch.uint8)


# --- measurements ---


def e2m1_encode(encode: Callable[[Tensor], Tensor]) -> str:
    x = decision_groups().flatten()
    ours, theirs = e2m1.encode(x), encode(x)
    minus_zeros = int((theirs == 8).sum())
    rest = equal(ours, torch.where(theirs == 8, 0, theirs))
    return f"{rest} but for code 8, which they write {minus_zeros:,} times"


def ct_encode(x: Tensor) -> Tensor:
    return e2m1.unpack(quantize_and_pack_fp4(x.view(-1, 16), torch.ones(x.numel() // 16, 1))).flatten()


def ml_encode(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8))


def e4m3_encode() -> str:
    x = torch.tensor([448.0, 464.0, 465.0, torch.inf])
    theirs = torch.from_numpy(x.numpy().astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    return against(byte_list(e4m3.to_bytes(x)), byte_list(theirs))


def products(read: Callable[[Tensor, Tensor], Tensor]) -> str:
    codes = e2m1.pack(CODES.expand(128, 16))
    scales = torch.cat([BYTES[:127], BYTES[127:128]]).unsqueeze(1)
    return equal(nvfp4.dequantize(codes, scales), read(codes, scales))


def ao_products(codes: Tensor, scales: Tensor) -> Tensor:
    return NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), 16, torch.float32).dequantize()


def ct_products(codes: Tensor, scales: Tensor) -> Tensor:
    state = {"weight_packed": codes, "weight_scale": scales.view(torch.float8_e4m3fn)}
    return NVFP4PackedCompressor.decompress(state, ct_scheme("NVFP4"))["weight"].float()


def ao_nvfp4(division: str, x: Tensor) -> str:
    theirs_scales, theirs = nvfp4_quantize(x)
    codes, scales = nvfp4.quantize(x, scale_floor=2.0**-6, division=division)
    result = equal(e2m1.unpack(codes), e2m1.unpack(without_minus_zero(theirs)))
    return f"codes {result}, scales {equal(scales, theirs_scales.view(torch.uint8))}"


def ao_nvfp4_global(division: str) -> str:
    x, g = decision_groups(), torch.tensor(0.0037)
    theirs_scales, theirs = nvfp4_quantize(x * g, per_tensor_scale=g)
    codes, scales = nvfp4.quantize(x * g, global_scale=g, scale_floor=2.0**-6, division=division)
    result = equal(e2m1.unpack(codes), e2m1.unpack(without_minus_zero(theirs)))
    return f"codes {result}, scales {equal(scales, theirs_scales.view(torch.uint8))}"


def ct_nvfp4_codes() -> str:
    x = decision_groups()
    theirs, theirs_scales = ct_nvfp4(x)
    codes, scales = nvfp4.quantize(x, scale_floor=0.0)
    result = equal(e2m1.unpack(codes), e2m1.unpack(without_minus_zero(theirs)))
    return f"codes {result}, scales {equal(scales, theirs_scales)}"


def small_groups(scale: Callable[[Tensor], Tensor]) -> str:
    """Scale bytes for amax 0, 2^-9, 2^-6, 2^-3."""
    x = torch.zeros(4, 16)
    x[:, 0] = torch.tensor([0, 2.0**-9, 2.0**-6, 2.0**-3])
    return against(byte_list(nvfp4.quantize(x)[1]), byte_list(scale(x)))


def e8m0_decode(values: Tensor) -> str:
    return equal(e8m0.from_bytes(BYTES), values.float())


def special_scales(name: str, rule: str, scales: Callable[[Tensor], Tensor]) -> str:
    """Scale bytes for amax 0, infinity, NaN."""
    amax = torch.tensor([0, torch.inf, torch.nan])
    return against(byte_list(e8m0.group_scales(amax, MX[name][0].ELEMENT, rule)), byte_list(scales(amax)))


def mx_elements(name: str, rule: str) -> str:
    x = ordinary_values(256)
    theirs, theirs_scales = ao_mx(x, name, rule)
    ours, scales = MX[name][0].quantize(x, scale_rounding=rule)
    minus_zeros = ""
    if name == "MXFP4":
        minus_zeros = f" but for {int((e2m1.unpack(theirs) == 8).sum()):,} codes 8 of theirs"
        ours, theirs = e2m1.unpack(ours), e2m1.unpack(without_minus_zero(theirs))
    result = equal(ours.view(torch.uint8), theirs.view(torch.uint8))
    return f"{result}{minus_zeros}, scales {equal(scales, theirs_scales)}"


def smallest_scale(name: str, rule: str) -> str:
    """What 2^-121 reads as, from a group whose scale is 2^-127, as a multiple of itself."""
    x = groups_with(torch.tensor([2.0**-121 if name == "MXFP8" else 2.0**-126]))
    module = MX[name][0]
    ours = module.dequantize(*module.quantize(x, scale_rounding=rule))
    theirs = module.dequantize(*ao_mx(x, name, rule))
    return against(f"{(ours / x)[0, 0].item():g} x", f"{(theirs / x)[0, 0].item():g} x")


def ao_reads(name: str) -> str:
    module, dtype = MX[name]
    data, scales = module.quantize(ordinary_values(256))
    return equal(module.dequantize(data, scales), to_dtype(data, scales, dtype, 32, torch.float32))


def ct_reads(name: str) -> str:
    module = MX[name][0]
    data, scales = module.quantize(ordinary_values(256))
    key = "weight_packed" if name == "MXFP4" else "weight"
    compressor = MXFP4PackedCompressor if name == "MXFP4" else MXFP8QuantizationCompressor
    state = compressor.decompress({key: data, "weight_scale": scales}, ct_scheme(name))
    return equal(module.dequantize(data, scales), state["weight"].float())


def swizzle() -> str:
    scales = (torch.arange(300 * 9) % 251).to(torch.uint8).view(300, 9)
    return equal(scale_layout.from_linear(scales, ScaleLayout.SWIZZLE_128X4), to_blocked(scales))


@dataclass(frozen=True)
class Row:
    """One line of the table; `measure` gives its result."""

    subject: str
    other: str
    note: str
    measure: Callable[[], str]

    def __str__(self) -> str:
        return f"| {self.subject} | {self.other} | {self.measure()} | {self.note} |"


def rows() -> list[Row]:
    found = [
        Row("E2M1: values of 16 codes", ML, "", lambda: equal(e2m1.decode(CODES), ml_values(CODES))),
        Row("E2M1: values of 16 codes", AO, "", lambda: equal(e2m1.decode(CODES), f4_unpacked_to_f32(CODES))),
        Row("E2M1: values of 16 codes", CT, "", lambda: equal(e2m1.decode(CODES), ct_values())),
        Row("E2M1: codes at decision points", ML, "", lambda: e2m1_encode(ml_encode)),
        Row("E2M1: codes at decision points", AO, "", lambda: e2m1_encode(f32_to_f4_unpacked)),
        Row("E2M1: codes at decision points", CT, "", lambda: e2m1_encode(ct_encode)),
        Row("E2M1: order of nibbles", AO, "", lambda: equal(e2m1.pack(CODES), pack_uint4(CODES))),
        Row("E4M3: bytes of 448, 464, 465, inf", ML, "they do not saturate", e4m3_encode),
        Row("NVFP4: read 16 codes x 128 scales", AO, "", lambda: products(ao_products)),
        Row(
            "NVFP4: read 16 codes x 128 scales", CT, "in bf16, which holds each product", lambda: products(ct_products)
        ),
        Row(
            "NVFP4: scale of amax 0, 2^-9, 2^-6, 2^-3",
            AO,
            "their floor is 2^-6; `scale_floor=0.015625` gives it",
            lambda: small_groups(lambda x: nvfp4_quantize(x)[0]),
        ),
        Row(
            "NVFP4: scale of amax 0, 2^-9, 2^-6, 2^-3",
            CT,
            "a scale that rounds to 0 becomes 0.125",
            lambda: small_groups(lambda x: ct_nvfp4(x)[1]),
        ),
        Row(
            "NVFP4: write, `scale_floor=2^-6`, `divide`",
            AO,
            "they multiply by the reciprocal",
            lambda: ao_nvfp4("divide", decision_groups()),
        ),
        Row(
            "NVFP4: write, `scale_floor=2^-6`, `reciprocal`",
            AO,
            "code 8 aside",
            lambda: ao_nvfp4("reciprocal", decision_groups()),
        ),
        Row(
            "NVFP4: write with a tensor scale, `divide`",
            AO,
            "they multiply by (1 / g) / scale",
            lambda: ao_nvfp4_global("divide"),
        ),
        Row(
            "NVFP4: write with a tensor scale, `reciprocal`",
            AO,
            "ours is 1 / (scale x g)",
            lambda: ao_nvfp4_global("reciprocal"),
        ),
        Row(
            "NVFP4: write, `scale_floor=0`, `divide`",
            CT,
            "code 8 aside; their global scale is a divisor, here 1",
            ct_nvfp4_codes,
        ),
        Row("128x4 swizzle of 300 x 9 scales", AO, "", swizzle),
        Row("E8M0: values of 256 bytes", ML, "", lambda: e8m0_decode(ml_scales())),
        Row("E8M0: values of 256 bytes", AO, "", lambda: e8m0_decode(get_fp_scale(BYTES))),
        Row("E8M0: values of 256 bytes", CT, "0xFF is infinity", lambda: e8m0_decode(decompress_mx_scale(BYTES))),
    ]
    for name in MX:
        for rule in e8m0.SCALE_ROUNDINGS:
            note = "their log2 is rounded to fp32 before it is rounded up" if rule == "rceil" else ""
            found.append(Row(f"{name}: scales by `{rule}`", AO, note, lambda n=name, r=rule: ao_rule(n, r)))
    for name, rule in (("MXFP4", "even"), ("MXFP8", "even"), ("MXFP8", "floor")):
        note = "they round to 1 bit of mantissa, the width of E2M1" if name == "MXFP8" else "this is their rule"
        found.append(Row(f"{name}: scales by `{rule}`", CT, note, lambda n=name, r=rule: ct_rule(n, r)))
    for rule in ("floor", "rceil"):
        found.append(
            Row(
                f"MXFP8: scale of amax 0, inf, NaN by `{rule}`",
                AO,
                "",
                lambda r=rule: special_scales("MXFP8", r, lambda amax: ao_mx(groups_with(amax), "MXFP8", r)[1]),
            )
        )
    for name in MX:
        for rule in ("floor", "rceil"):
            found.append(Row(f"{name}: elements by `{rule}`", AO, "", lambda n=name, r=rule: mx_elements(n, r)))
    for rule, note in (("floor", "they divide by 2^-126 but store 2^-127"), ("rceil", "they divide by 1")):
        found.append(
            Row(
                f"MXFP8: a value in a group of scale 2^-127, `{rule}`",
                AO,
                note,
                lambda r=rule: smallest_scale("MXFP8", r),
            )
        )
    for name in MX:
        found.append(Row(f"{name}: they read what we write", AO, "", lambda n=name: ao_reads(n)))
        found.append(Row(f"{name}: they read what we write", CT, "in bf16", lambda n=name: ct_reads(n)))
    return found


def ml_values(codes: Tensor) -> Tensor:
    return torch.from_numpy(codes.numpy().view(ml_dtypes.float4_e2m1fn).astype(np.float32))


def ml_scales() -> Tensor:
    return torch.from_numpy(BYTES.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32))


def ct_values() -> Tensor:
    return unpack_fp4_from_uint8(e2m1.pack(CODES).view(1, 8), 1, 16, torch.float32)[0]


def ao_rule(name: str, rule: str) -> str:
    theirs = ao_mx(groups_with(boundary_magnitudes()), name, rule)[1].flatten()
    ours = e8m0.group_scales(boundary_magnitudes(), MX[name][0].ELEMENT, rule)
    if rule != "rceil":
        return equal(ours, theirs)
    # Their log2 is the C library's, so the count depends on the machine; what differs does not.
    less = theirs < ours
    assert not (theirs > ours).any() and torch.equal(theirs[less] + 1, ours[less])
    quotient = boundary_magnitudes()[less] / MX[name][0].ELEMENT.max
    above = quotient / torch.exp2(quotient.log2().round()) - 1
    assert ((above > 0) & (above < 1e-5)).all()
    return "some are 1 less, just above powers of two" if less.any() else "equal"


def ct_rule(name: str, rule: str) -> str:
    ours = e8m0.group_scales(boundary_magnitudes(), MX[name][0].ELEMENT, rule)
    return equal(ours, ct_mx_scales(boundary_magnitudes(), name).flatten())


def table() -> list[str]:
    versions = ", ".join(f"{name} {version(name)}" for name in (AO, CT, ML))
    head = [f"Measured with {versions}, on the CPU.", "", "| What | Against | Result | Note |", "|---|---|---|---|"]
    return head + [str(row).replace("  ", " ") for row in rows()]


def documented() -> list[str]:
    lines = DOCUMENT.read_text().splitlines()
    return lines[lines.index(BEGIN) + 1 : lines.index(END)]


def main() -> None:
    lines = DOCUMENT.read_text().splitlines()
    lines[lines.index(BEGIN) + 1 : lines.index(END)] = table()
    DOCUMENT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
