"""The compiled kernels of this build: their host launchers and their PTX on the emulator, bit-equal to the reference.

Needs the folder that `make kernels` filled, in MSA_OPS_KERNELS, and a module that was built with it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from msa_ops.cute.quantize_nvfp4 import sm90_configs as quantize_configs  # type: ignore[import-untyped]
from msa_ops.cute.select_blocks import sm90_configs as select_configs  # type: ignore[import-untyped]

from msa_ops import _C
from msa_ops.emulator import EmulatorFault, Report, run_compiled
from msa_ops.ops import quantize_nvfp4, scaled, select_blocks

pytestmark = pytest.mark.slow
FOLDER = os.environ.get("MSA_OPS_KERNELS", "")
BUILT = {name for name, _ in _C.compiled_kernels()}


def run(name: str, args: list[object], tensors: dict[str, torch.Tensor] | None = None) -> Report:
    if not FOLDER:
        pytest.skip("MSA_OPS_KERNELS names no folder of compiled kernels; `make kernels` fills build/kernels")
    # Whoever names a folder wants its kernels run: what is missing is then a failure.
    path = Path(FOLDER) / "sm_90a" / f"{name}.ptx"
    assert path.exists(), f"{FOLDER} holds no PTX of {name}"
    assert name in BUILT, f"this build holds no {name}; install with -C cmake.define.MSA_OPS_KERNELS={FOLDER}"
    return run_compiled(name, path.read_text(), args, tensors)


@pytest.mark.parametrize("config", quantize_configs.FAMILY.configs, ids=lambda config: config.name)
@pytest.mark.parametrize("variant", [variant for variant in scaled.QUANTIZE_VARIANTS if variant != "empty"])
def test_quantize_nvfp4(config: quantize_configs.Config, variant: str) -> None:
    args = quantize_nvfp4.generate(7, variant=variant)
    args.x = args.x.to(getattr(torch, config.dtype)).contiguous()
    args.division = config.division
    scales_tried = [torch.tensor([value]) for value in (0.37, 1e-39, 0.0, -1.0, torch.inf, torch.nan)]
    for args.global_scale in scales_tried if config.global_scale else [None]:
        expected = quantize_nvfp4.reference(args)
        # Fresh memory of random bytes: everything must be written, and nothing beside it.
        codes, scales = (torch.randint(0, 256, out.shape, dtype=torch.uint8) for out in expected)
        name = f"quantize_nvfp4__{config.name}__sm_90a"
        values = [args.x, codes, scales, args.global_scale, args.scale_floor, scales.numel()]
        report = run(name, values)
        assert torch.equal(codes, expected[0]) and torch.equal(scales, expected[1]), args.global_scale
        assert report.launches == 1
        groups = scales.numel()
        assert report.global_bytes_read == groups * (16 * args.x.element_size() + 4 * config.global_scale)
        assert report.global_bytes_written == groups * 9


@pytest.mark.parametrize("config", select_configs.CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("variant", select_blocks.VARIANTS)
def test_select_blocks(config: select_configs.Config, variant: str) -> None:
    args = select_blocks.generate(7, tokens=3, num_heads=2, max_blocks=config.capacity - 3, variant=variant)
    (expected,) = select_blocks.reference(args)
    ids = torch.full_like(expected, 77)
    tokens, heads, width = args.scores.shape
    values = [
        args.scores, args.num_blocks, ids, args.num_blocks.stride(0), *args.scores.stride()[:2], *ids.stride()[:2],
        tokens, heads, width, args.topk, args.init_blocks, args.local_blocks,
    ]  # fmt: skip
    run(f"select_blocks__{config.name}__sm_90a", values)
    assert torch.equal(ids, expected)


def test_fault_comes_through_the_host_launcher() -> None:
    args = quantize_nvfp4.generate(7)
    args.x = args.x.to(torch.bfloat16).contiguous()
    codes, scales = (torch.zeros_like(out) for out in quantize_nvfp4.reference(args))
    values = [args.x, codes, scales.view(-1)[:-1], None, args.scale_floor, scales.numel()]
    with pytest.raises(EmulatorFault) as caught:
        run("quantize_nvfp4__bfloat16_plain_divide__sm_90a", values)
    assert caught.value.kind == "out of bounds"
    assert caught.value.address == scales.data_ptr() + scales.numel() - 1
    assert caught.value.lane == (scales.numel() - 1) % 32


def test_text_without_the_kernel() -> None:
    text = ".version 9.0\n.target sm_90a\n.address_size 64\n.entry other() { ret; }"
    name = next((name for name in sorted(BUILT) if name.startswith("quantize_nvfp4")), None)
    if name is None:
        assert not FOLDER, f"this build holds no kernels; install with -C cmake.define.MSA_OPS_KERNELS={FOLDER}"
        pytest.skip("this build of msa_ops holds no kernels")
    with pytest.raises(ValueError, match="which none of the 1 texts holds"):
        run_compiled(name, text, [None, None, None, None, 0.0, 1])
    with pytest.raises(NotImplementedError, match="no kernel nonsense"):
        run_compiled("nonsense", text, [])
