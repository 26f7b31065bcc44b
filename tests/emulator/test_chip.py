"""`msa_ops.emulate`: the registry's platform of the CPU, and what kernels may touch there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.emulator import EmulatorFault, run_ptx
from msa_ops.nvidia.launch import bits, launch
from msa_ops.ops import quantize_nvfp4, sparse_attention
from msa_ops.registry import NoBackendError, virtual
from msa_ops.registry import platform as platforms
from msa_ops.registry.virtual import Region
from tests.emulator.programs import kernel

CPU = torch.device("cpu")
KERNEL = "quantize_nvfp4__bfloat16_plain_divide__sm_90a"


def needs_kernels() -> None:
    if (KERNEL, "sm_90a") not in _C.compiled_kernels():
        pytest.skip("this build of msa_ops holds no kernels")


def test_platform_of_the_cpu() -> None:
    assert platforms.of_device(CPU).arch == "cpu"
    with msa_ops.emulate("H200") as chip:
        assert platforms.of_device(CPU) is chip.platform is platforms.parse("sm_90a")
        with msa_ops.emulate("sm_90a", multiprocessors=4) as smaller:
            assert platforms.of_device(CPU) is smaller.platform
            assert (smaller.platform.multiprocessors, smaller.platform.arch) == (4, "sm_90a")
        assert platforms.of_device(CPU) is chip.platform
    assert platforms.of_device(CPU).arch == "cpu"


def test_an_emulation_is_used_for_several_blocks() -> None:
    emulation = msa_ops.emulate("H200", multiprocessors=3)
    with emulation as first, emulation as inner:
        assert platforms.of_device(CPU) is inner.platform and inner is not first
    assert virtual.current() is None
    with pytest.raises(KeyError), emulation:
        raise KeyError
    assert virtual.current() is None
    with emulation as again:
        assert virtual.current() is again and again.launches == [] and again.platform.multiprocessors == 3

    @emulation
    def arch() -> str:
        return platforms.of_device(CPU).arch

    assert (arch(), arch()) == ("sm_90a", "sm_90a")


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("sm_90a", {"threads": 0}, "threads: 0; accepted: 1 to 1024"),
        ("cpu", {}, "arch: 'cpu'; accepted: sm_90a, sm_100a, sm_103a, sm_107a, gfx950"),
        ("sm_12", {}, "unknown chip 'sm_12'"),
        ("sm_90a", {"multiprocessors": 0}, "multiprocessors: 0; accepted: 1 to 1024"),
    ],
)
def test_bad_input(arch: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message), msa_ops.emulate(arch, **options):
        pass
    assert virtual.current() is None


def test_ops_without_a_kernel_for_the_chip() -> None:
    """As on the chip itself: the reference runs when it is asked for."""
    x, weight = torch.randn(3, 64), torch.randn(64)
    expected = msa_ops.rms_norm(x, weight)
    with msa_ops.emulate() as chip:
        with pytest.raises(NoBackendError, match="reference"):
            msa_ops.rms_norm(x, weight)
        assert torch.equal(msa_ops.rms_norm(x, weight, backend="reference"), expected)
    assert chip.launches == []
    assert torch.equal(msa_ops.rms_norm(x, weight), expected)


def test_launch_needs_a_chip_and_a_call() -> None:
    with pytest.raises(NotImplementedError, match=r"on the CPU; run it within msa_ops\.emulate"):
        launch(KERNEL, CPU, 0)
    with msa_ops.emulate(), pytest.raises(RuntimeError, match="outside of an op's call"):
        launch(KERNEL, CPU, 0)


def test_registry_chooses_the_kernel_and_back() -> None:
    needs_kernels()
    args = quantize_nvfp4.generate(3)
    expected = msa_ops.quantize_nvfp4(args.x)
    with msa_ops.emulate() as chip:
        for _ in range(2):
            assert all(map(torch.equal, msa_ops.quantize_nvfp4(args.x), expected))
        reference = msa_ops.quantize_nvfp4(args.x, backend="reference")
        assert all(map(torch.equal, reference, expected))
    assert [(one.op, one.backend, one.kernel) for one in chip.launches] == [("quantize_nvfp4", "cute_sm90", KERNEL)] * 2
    assert chip.launches[0].report == chip.launches[1].report
    assert chip.launches[0].report.global_bytes_read == 2 * args.x.numel()
    msa_ops.quantize_nvfp4(args.x)
    assert len(chip.launches) == 2


def test_kernels_use_the_call_s_tensors_alone() -> None:
    needs_kernels()
    x = quantize_nvfp4.generate(3).x.to(torch.bfloat16).contiguous()
    codes, scales = quantize_nvfp4.reference(quantize_nvfp4.Args(x))
    values = [x.data_ptr(), codes.data_ptr(), scales.data_ptr(), 0, bits(2.0**-9), scales.numel()]
    inputs, outputs = Region("x", x, False), [Region("codes", codes, True), Region("scales", scales, True)]
    for regions, kind in (
        ([inputs, *outputs], None),
        ([inputs, outputs[0]], "out of bounds"),
        ([inputs, outputs[0], Region("scales", scales, False)], "read only"),
    ):
        with msa_ops.emulate() as chip, chip.call("quantize_nvfp4", "cute_sm90", regions):
            if kind is None:
                launch(KERNEL, CPU, *values)
                continue
            with pytest.raises(EmulatorFault) as caught:
                launch(KERNEL, CPU, *values)
            assert caught.value.kind == kind


def test_instructions_are_bounded() -> None:
    needs_kernels()
    x = quantize_nvfp4.generate(3).x
    with msa_ops.emulate(max_instructions=10), pytest.raises(EmulatorFault, match="limit"):
        msa_ops.quantize_nvfp4(x, backend="cute_sm90")


def test_kernel_and_launcher_see_the_number_of_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = np.zeros(3, np.uint32)
    body = "mov.u32 %r1, %nsmid; st.global.u32 [%rd0], %r1; mov.u32 %r2, %smid; st.global.u32 [%rd0+4], %r2;"
    run_ptx(kernel(body), "k", 1, 1, [seen], multiprocessors=7)
    assert list(seen[:2]) == [7, 0]
    with pytest.raises(ValueError, match="multiprocessors: 0; accepted: 1 to 1024"):
        run_ptx(kernel(body), "k", 1, 1, [seen], multiprocessors=0)
    needs_kernels()
    given: dict[str, object] = {}
    emulate_launch = _C.emulate_launch
    monkeypatch.setattr(_C, "emulate_launch", lambda *a, **k: (given.update(k), emulate_launch(*a, **k))[1])
    with msa_ops.emulate("sm_90a", multiprocessors=3, sum_order=11):
        msa_ops.quantize_nvfp4(torch.randn(4, 128).to(torch.bfloat16), backend="cute_sm90")
    assert (given["multiprocessors"], given["sum_order"]) == (3, 11)


@pytest.mark.slow
def test_the_order_of_sums_is_drawn() -> None:
    """Two orders give different last bits of an attention's sums, and one order always the same."""
    needs_kernels()
    args = sparse_attention.generate(5, batch=4, seq_len=1500, q_len=1, topk=8)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}

    def run(sum_order: int | None) -> torch.Tensor:
        with msa_ops.emulate("sm_90a", sum_order=sum_order, multiprocessors=4):
            return msa_ops.sparse_attention(**{**values, "return_lse": True}, backend="cute_sm90")[1]  # in fp32

    ascending, drawn = run(None), run(1)
    assert torch.equal(drawn, run(1))
    assert not torch.equal(ascending, drawn)
    torch.testing.assert_close(ascending, drawn, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_threads_of_the_host_change_nothing() -> None:
    needs_kernels()
    x = torch.randn(300, 128).to(torch.bfloat16)

    def run(threads: int) -> tuple[list[torch.Tensor], dict[str, int]]:
        with msa_ops.emulate("sm_90a", threads=threads) as chip:
            out = msa_ops.quantize_nvfp4(x, backend="cute_sm90")
        return list(out), chip.launches[0].report.warp_instructions

    (codes, scales), counts = run(1)
    (other_codes, other_scales), other_counts = run(3)
    assert torch.equal(codes, other_codes) and torch.equal(scales, other_scales)
    assert counts == other_counts


def test_a_block_that_never_began() -> None:
    with pytest.raises(RuntimeError, match="never began"):
        msa_ops.emulate("sm_90a").__exit__(None, None, None)
