"""RMSNorm and softmax; norm, RoPE and quantisation of queries and keys in one."""

from __future__ import annotations

import os
from typing import Any

import torch

from tests.emulator.gfx950.public.cases import Case, compare
from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.mend import Insert

NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
STEP = {torch.float32: 2.0**-21, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Of a number near 1, with the error of fp32 arithmetic before it."""


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def _rms_norm(rows: int, n: int, dtype: torch.dtype, residual: bool = False):
    def run(_: Hip) -> str:
        from kernels.norm import rmsnorm_kernel as kernels

        x, weight = torch.randn(rows, n).to(dtype), torch.rand(n).to(dtype)
        out = torch.full_like(x, float("nan"))
        if residual:
            added, total = torch.randn(rows, n).to(dtype), torch.full_like(x, float("nan"))
            kernels.build_fused_add_rmsnorm_module(n, NAMES[dtype])(x, added, weight, out, total, rows)
            compare(total, x.double() + added.double(), absolute=STEP[dtype], relative=STEP[dtype])
            x = x.double() + added.double()
        else:
            kernels.build_rmsnorm_module(n, NAMES[dtype])(x, weight, out, rows)
        return compare(out, _norm(x, weight, 1e-5), absolute=STEP[dtype], relative=2 * STEP[dtype])

    return run


def _rms_norm_quant(n: int, dtype: torch.dtype):
    def run(_: Hip) -> str:
        from kernels.norm import rmsnorm_kernel as kernels

        rows = 4
        x, weight = torch.randn(rows, n).to(dtype), torch.rand(n).to(dtype)
        out, scale = torch.zeros(rows, n, dtype=torch.int8), torch.zeros(rows)
        kernels.build_rmsnorm_dynamicquant_module(n, NAMES[dtype])(x, weight, out, scale, rows)
        wanted = _norm(x, weight, 1e-5)
        return compare(out.double() * scale[:, None].double(), wanted, absolute=wanted.abs().max().item() / 127)

    return run


def _layer_norm_quant(rows: int, n: int, dtype: torch.dtype):
    def run(_: Hip) -> str:
        from kernels.norm import layernorm_kernel as kernels

        x = torch.randn(rows, n).to(dtype)
        weight, bias = torch.rand(n).to(dtype), torch.rand(n).to(dtype)
        out, scale = torch.zeros(rows, n, dtype=torch.int8), torch.zeros(rows)
        kernels.build_layernorm_dynamicquant_module(n, NAMES[dtype])(x, weight, bias, out, scale, rows)
        centred = x.double() - x.double().mean(-1, keepdim=True)
        wanted = _norm(centred, weight, 1e-5) + bias.double()
        return compare(out.double() * scale[:, None].double(), wanted, absolute=wanted.abs().max().item() / 127)

    return run


def _quant(rows: int, n: int):
    """A kernel that stands in FlyDSL's tests."""

    def run(_: Hip) -> str:
        os.environ["FLYDSL_RUN_QUANT"] = "1"
        from tests.kernels.test_quant import build_quant_module

        x = (torch.rand(rows, n) * 10 - 5).half()
        out, scale = torch.zeros(rows, n, dtype=torch.int8), torch.zeros(rows)
        launch, _ = build_quant_module(n)
        launch(x, out, scale, rows)
        compare(scale, x.double().abs().amax(-1) / 127, absolute=1e-6)
        return compare(out.double() * scale[:, None].double(), x, absolute=scale.double()[:, None] * 1.001)

    return run


def _softmax(_: Hip) -> str:
    from kernels.norm.softmax_kernel import build_softmax_module

    rows, n = 4, 2000
    x = torch.randn(rows, n).bfloat16()
    out = torch.full_like(x, float("nan"))
    build_softmax_module(rows, n, "bf16")(x, out, rows)
    return compare(out, x.double().softmax(-1), absolute=1e-6, relative=0.01)


def _take_pointers() -> None:
    """FlyDSL 0.5.0 has no address of a pointer's first element, which the older source asks for."""
    import flydsl.expr as fx
    from flydsl.expr import arith, as_ir_value
    from flydsl.expr.typing import T
    from kernels.common import tensor_shim

    def address(_: Any, pointer: Any, offset: Any, *__: Any) -> Any:
        return as_ir_value(fx.Int64(fx.ptrtoint(pointer)) + fx.Int64(arith.index_cast(T.i64, offset)))

    tensor_shim.GTensor.get_llvm_ptr = address


def _qk_norm_rope_quant(quant: bool, group: int | None, scale_dtype: str, weighted: bool):
    """DeepSeek's shape: 512 numbers a head, of which the last 64 are rotated in pairs."""

    def run(_: Hip) -> str:
        from kernels.attention.qk_norm_rope_quant import flydsl_qk_norm_rope_quant

        _take_pointers()
        tokens, heads, d, rotated = 5, 4, 512, 64
        q, kv = torch.randn(tokens, heads, d).bfloat16(), torch.randn(tokens, d).bfloat16()
        weight, q_weight = torch.rand(d).bfloat16(), torch.rand(d).bfloat16()
        angles = torch.rand(100, rotated // 2) * 6
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        positions = torch.randint(0, 100, (tokens,))
        q_out, kv_out, q_scale, kv_scale = flydsl_qk_norm_rope_quant(
            q, kv, weight, cos, sin, positions, num_q_heads=heads, head_dim=d, rope_head_dim=rotated,
            q_weight=q_weight if weighted else None, quant=quant, quant_group_size=group, scale_dtype=scale_dtype,
        )  # fmt: skip
        c, s = cos[positions].double(), sin[positions].double()
        results = []
        for x, w, out, scale in (
            (q, q_weight.double() if weighted else torch.ones(d), q_out, q_scale),
            (kv[:, None], weight.double(), kv_out[:, None], kv_scale),
        ):
            wanted = _norm(x, w, 1e-6)
            pair = wanted[..., d - rotated :].unflatten(-1, (-1, 2))
            a, b = pair[..., 0], pair[..., 1]
            turned = torch.stack([a * c[:, None] - b * s[:, None], a * s[:, None] + b * c[:, None]], -1)
            wanted[..., d - rotated :] = turned.flatten(-2)
            if scale is None:
                results.append(compare(out, wanted, absolute=0.01, relative=0.01))
                continue
            factor = scale.double() if scale.dtype == torch.float32 else torch.exp2(scale.double() - 127)
            factor = factor.reshape(tokens, -1, factor.shape[-1], 1)
            found = out.double().unflatten(-1, (factor.shape[2], -1)) * factor
            steps = (wanted.unflatten(-1, (factor.shape[2], -1)).abs() / 15 + factor / 256).flatten(-2)
            results.append(compare(found.flatten(-2), wanted, absolute=steps))
        return ", ".join(results)

    return run


# A second reduction writes where the result of the first is still being read.
_NORM_BARRIER = (Insert("kernels.norm.rmsnorm_kernel", "f8d078dc3809", 844, "gpu.barrier()"),)
_LAYER_BARRIER = (Insert("kernels.norm.layernorm_kernel", "c7af369cee6e", 877, "gpu.barrier()"),)
_SOFTMAX_BARRIER = (Insert("kernels.norm.softmax_kernel", "b8d8e89c0775", 83, "gpu.barrier()"),)

CASES = [
    Case("rmsnorm", "2 rows of 8192, bf16", _rms_norm(2, 8192, torch.bfloat16)),
    Case("rmsnorm_f32", "4 rows of 256, fp32", _rms_norm(4, 256, torch.float32)),
    Case("rmsnorm_odd", "3 rows of 2000, fp16", _rms_norm(3, 2000, torch.float16)),
    Case("rmsnorm_add", "with a residual, 3 rows of 4096", _rms_norm(3, 4096, torch.bfloat16, residual=True)),
    Case("rmsnorm_quant", "to int8, 4 rows of 2048", _rms_norm_quant(2048, torch.bfloat16)),
    Case(
        "rmsnorm_quant_256",
        "to int8, 4 rows of 256",
        _rms_norm_quant(256, torch.float32),
        alarm="race",
        mend=_NORM_BARRIER,
    ),
    Case(
        "layernorm_quant",
        "to int8, 4 rows of 2048",
        _layer_norm_quant(4, 2048, torch.bfloat16),
        alarm="race",
        mend=_LAYER_BARRIER,
    ),
    Case(
        "layernorm_quant_odd",
        "to int8, 3 rows of 200",
        _layer_norm_quant(3, 200, torch.float32),
        alarm="race",
        mend=_LAYER_BARRIER,
    ),
    Case(
        "layernorm_quant_half",
        "to int8, 3 rows of 128",
        _layer_norm_quant(3, 128, torch.float16),
        alarm="race",
        mend=_LAYER_BARRIER,
    ),
    Case("quant", "to int8, 4 rows of 4096", _quant(4, 4096)),
    Case("quant_odd", "to int8, 3 rows of 1000", _quant(3, 1000), alarm="out of bounds"),
    Case("softmax", "4 rows of 2000", _softmax, alarm="race", mend=_SOFTMAX_BARRIER),
    Case("qk_norm_rope", "bf16 results", _qk_norm_rope_quant(False, None, "fp32", False)),
    Case("qk_norm_rope_quant", "FP8, a scale a row", _qk_norm_rope_quant(True, None, "fp32", True)),
    Case("qk_norm_rope_quant_mx", "FP8, E8M0 scales of 64", _qk_norm_rope_quant(True, 64, "e8m0", False)),
]
