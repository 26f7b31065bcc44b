from __future__ import annotations

import pytest
import torch

from msa_ops.bench import chips, roof
from msa_ops.bench.decode import FormatError
from msa_ops.bench.roof import Roof
from msa_ops.registry import SIMULATED, STORE, Cost

MADE_UP = Roof("x", {"read": 100.0, "copy": 80.0}, {"bf16": 1000.0, "fp8": 2000.0}, False)


def test_bound_is_the_larger_time() -> None:
    assert MADE_UP.bound(Cost(150, 50, 1000), "bf16") == (2.0, "memory")
    assert MADE_UP.bound(Cost(150, 50, 5000), "bf16") == (5.0, "compute")
    assert MADE_UP.bound(Cost(150, 50, 5000), "fp8") == (2.5, "compute")


def test_missing_precisions_take_the_next_wider() -> None:
    assert MADE_UP.rate("fp4") == 2000 and MADE_UP.rate("bf16") == 1000
    assert MADE_UP.rate("fp32") == 1000, "the widest that is known"
    assert Roof("cpu", {"read": 1.0}, {"fp32": 5.0}, True).rate("fp8") == 5


@pytest.mark.parametrize(
    ("op", "dims", "expected"),
    [
        ("indexer", {"index_format": "nvfp4"}, "fp8"),
        ("indexer", {"index_format": "bf16"}, "bf16"),
        ("sparse_attention", {"kv_format": "fp8"}, "fp8"),
        ("moe", {"weight_format": "nvfp4"}, "fp8"),
        ("moe", {"weight_format": "nvfp4", "activation_format": "nvfp4"}, "fp4"),
        ("moe", {}, "bf16"),
        ("rms_norm", {}, "bf16"),
        ("rms_norm", {"dtype": "float32"}, "fp32"),
    ],
)
def test_precision(op: str, dims: dict[str, str], expected: str) -> None:
    assert roof.precision(STORE.op(op).generate(0, **dims)) == expected


def test_measured_roof_of_the_cpu_is_plausible() -> None:
    """Between a slow laptop and the fastest servers; the matrix rate is above one multiply-add a nanosecond."""
    found = roof.measure(torch.device("cpu"), 1 << 20)
    assert found.measured and set(found.bandwidth) == {"read", "write", "copy"}
    assert all(1e8 < value < 1e13 for value in found.bandwidth.values())
    assert 1e9 < found.rates["fp32"] < 1e15


def test_every_simulated_gpu_has_a_chip() -> None:
    for arch in set(SIMULATED) - {"cpu"}:
        assert chips.chip(arch).sources
    assert chips.chip("H200") is chips.chip("sm_90a") is not chips.chip("H100")
    assert chips.chip("GB200") is chips.chip("B200")
    with pytest.raises(FormatError, match="'b20': unknown; did you mean 'b200'"):
        chips.chip("b20")


def test_chips_against_independent_arithmetic() -> None:
    """Rates from units x flop a clock x clock, bandwidths from stacks x pins x rate."""
    assert chips.CHIPS["mi355x"].rate("fp8") == pytest.approx(256 * 8192 * 2.4e9, rel=1e-3)
    assert chips.CHIPS["mi350x"].rate("bf16") == pytest.approx(256 * 4096 * 2.2e9, rel=1e-3)
    assert chips.CHIPS["h100"].rate("bf16") == pytest.approx(132 * 4096 * 1.83e9, rel=1e-2)
    assert chips.CHIPS["h100"].bytes_per_second == pytest.approx(5 * 1024 / 8 * 5.23e9, rel=1e-2)
    assert chips.CHIPS["b200"].bytes_per_second == pytest.approx(8 * 1024 / 8 * 8e9, rel=0.05)
