"""FlashInfer's kernels in CuTe-DSL on an emulated chip: `python -m tests.emulator.public.flashinfer_kernels [CHIP]`.

Wants flashinfer-python 0.7.2.post1, requests, tqdm, tabulate, click, nvidia-ml-py, filelock and apache-tvm-ffi beside
CuTe-DSL (`pip install --no-deps ...`: what else it demands is for other kernels). Each runs by FlashInfer's own entry,
in order and with seeds 1 and 2, and is compared with torch or with FlashInfer's own reference.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from msa_ops.emulator import JitSession, cpu_as_gpu, jit
from msa_ops.formats import nvfp4, scale_layout
from msa_ops.formats.scale_layout import ScaleLayout

ROWS, WIDTH = 200, 512
PAGES, CHOSEN = 6, 4


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(torch.bfloat16)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def want_close(found: torch.Tensor, expected: torch.Tensor, error: float) -> None:
    torch.testing.assert_close(found.float(), expected.float(), rtol=error, atol=error)


def norms(run: Callable[[Callable[[], Any]], None]) -> None:
    from flashinfer.norm.kernels import fused_add_rmsnorm, layernorm, rmsnorm

    x, weight, out = normal(5, 1024), normal(1024), normal(5, 1024)
    run(lambda: rmsnorm.rmsnorm_cute(x, weight, out, 1e-6))
    want_close(out, rms(x.float()) * weight.float(), 1e-2)
    residual = normal(5, 1024)
    total = x.float() + residual.float()
    changed = x.clone()
    run(lambda: fused_add_rmsnorm.fused_add_rmsnorm_cute(changed, residual, weight, 1e-6))
    want_close(changed, rms(total) * weight.float(), 1e-2)
    want_close(residual, total, 1e-2)
    gain, bias = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
    run(lambda: layernorm.layernorm_cute(out, x, gain, bias, 1e-6))
    want_close(out, torch.nn.functional.layer_norm(x.float(), (1024,), gain, bias, 1e-6), 2e-2)


def quantizers(run: Callable[[Callable[[], Any]], None]) -> None:
    from flashinfer.quantization.kernels import mxfp4_quantize, mxfp8_quantize, nvfp4_quantize

    x, one = normal(ROWS, WIDTH), torch.ones(1, device="cuda")
    made: list[Any] = []
    run(lambda: made.append(nvfp4_quantize.nvfp4_quantize_cute_dsl(x, one, 0)))  # scales in tiles of 128 x 4
    codes, scales = made.pop()
    linear = scale_layout.to_linear(
        scales.flatten().view(torch.uint8), ScaleLayout.SWIZZLE_128X4, ROWS, WIDTH // nvfp4.GROUP
    )
    values = nvfp4.dequantize(codes.view(torch.uint8), linear)
    # Half a step of the largest code, relative to the largest number of a group.
    largest = x.float().abs().view(ROWS, -1, nvfp4.GROUP).amax(-1).repeat_interleave(nvfp4.GROUP, 1)
    if not bool(((values - x.float()).abs() <= largest * (1 / 6 + 1 / 16)).all()):
        raise AssertionError("nvfp4: an error of more than half a step")
    run(lambda: made.append(mxfp8_quantize.mxfp8_quantize_cute_dsl(x, False)))
    codes, scales = made.pop()
    powers = torch.exp2(scales.view(torch.uint8).float().view(ROWS, -1) - 127).repeat_interleave(32, 1)
    want_close(codes.float() * powers, x, 7e-2)
    run(lambda: made.append(mxfp4_quantize.mxfp4_quantize_cute_dsl(x)))


def sparse_decode(run: Callable[[Callable[[], Any]], None]) -> None:
    """MiniMax's sparse attention over pages of NVFP4, against FlashInfer's own reference."""
    from flashinfer.msa_ops import _nvfp4_decode_sm100 as route
    from flashinfer.msa_ops.cute_dsl import sparse_decode_nvfp4_sm100 as kernels

    device = torch.device("cuda", 0)
    kernels.warmup(device)
    for batch in (1, 2, 5):
        given = route._specialised_warm_inputs(device, batch)
        pool = torch.randint(0, 256, (PAGES * given["k"].stride(0),), dtype=torch.uint8, device="cuda")
        for name in ("k", "v", "k_scale", "v_scale"):
            one = given[name]
            given[name] = pool.as_strided((PAGES, *one.shape[1:]), one.stride(), one.storage_offset())
            if name.endswith("scale"):
                scales = (torch.rand(given[name].shape) * 4 + 0.25).to(torch.float8_e4m3fn)
                given[name].copy_(scales.view(torch.uint8))
        given["q"] = normal(*given["q"].shape)
        given["page_table"] = torch.stack([torch.randperm(PAGES)[:CHOSEN].int() for _ in range(batch)])
        given["q2k_indices"][:, :, :CHOSEN] = torch.arange(CHOSEN, dtype=torch.int32)
        given["seqused_k"] = torch.full((batch,), 3 * route._PAGE_SIZE + 37, dtype=torch.int32)
        out, expected = torch.zeros_like(given["q"]), torch.zeros_like(given["q"])
        names = ("q", "k", "v", "k_scale", "v_scale", "q2k_indices", "page_table", "seqused_k")
        arguments = [given[name] for name in names]
        run(lambda arguments=arguments, out=out: kernels.run(*arguments, 1, True, 128**-0.5, 1.0, 1.0, out))
        keywords = dict(zip(("q", "k_data", "v_data", *names[3:]), arguments, strict=True))
        route.reference(**keywords, softmax_scale=128**-0.5, k_global_scale=1.0, v_global_scale=1.0, out=expected)
        want_close(out, expected, 1e-2)


def main() -> int:
    os.environ["FLASHINFER_CUTE_DSL_DISABLE_CACHE"] = "1"  # what lies on the disk would be loaded past the session
    chip = sys.argv[1] if len(sys.argv) > 1 else "sm_100a"
    failed = 0
    for case in (norms, quantizers, sparse_decode):
        with jit(chip) as session, cpu_as_gpu(session, multiprocessors=8):
            importlib.import_module("flashinfer")
            for seed in (None, 1, 2):
                failed += not _one(case, session, chip, seed)
    return failed


def _one(case: Callable[..., None], session: JitSession, chip: str, seed: int | None) -> bool:
    session.schedule(seed)
    torch.manual_seed(0)
    started, before, problem = time.perf_counter(), len(session.launches), ""
    try:
        case(lambda call: session.run(call))
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error).strip()}"
    done = session.launches[before:]
    instructions = sum(launch.report.total_warp_instructions for launch in done)
    print(
        f"{case.__name__} {chip} seed {seed}: {f'FAILED {problem}' if problem else 'passed'}; {len(done)} launches, "
        f"{instructions:,} warp instructions, {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    return not problem


if __name__ == "__main__":
    raise SystemExit(main())
