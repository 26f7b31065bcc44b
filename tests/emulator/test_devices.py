"""What entries take as a chip: an arch, a platform, an emulated chip; another number of multiprocessors."""

from __future__ import annotations

import numpy as np
import pytest

import msa_ops
from msa_ops.emulator import run_ptx, run_ptx_on_devices
from msa_ops.emulator.devices import device
from msa_ops.registry import parse_platform
from tests.emulator.programs import kernel

PTX = kernel("mov.u32 %r1, %nsmid;\nst.global.b32 [%rd0], %r1;")


def multiprocessors(**options: object) -> int:
    out = np.zeros(1, np.int32)
    run_ptx(PTX, "k", 1, 1, [out], **options)  # type: ignore[arg-type]
    return int(out[0])


def test_chips() -> None:
    assert multiprocessors(chip="sm_90a") == multiprocessors(chip="h200") == 132
    assert device("B200")[0] == "sm_100a" and device("MI355X")[0] == "gfx950"
    assert multiprocessors(chip=parse_platform("sm_90a")) == parse_platform("sm_90a").multiprocessors
    with msa_ops.emulate("sm_90a", multiprocessors=7) as chip:
        assert multiprocessors(chip=chip) == 7
        assert multiprocessors(chip=chip, multiprocessors=9) == 9
        assert multiprocessors(chip=chip.platform) == 7


def test_on_devices() -> None:
    out = [np.zeros(1, np.int32) for _ in range(2)]
    run_ptx_on_devices(PTX, "k", 1, 1, [[one] for one in out], chip=parse_platform("sm_90a"), multiprocessors=5)
    assert [one[0] for one in out] == [5, 5]


@pytest.mark.parametrize("chip", [None, 90, object()])
def test_no_chip(chip: object) -> None:
    with pytest.raises(TypeError, match=r"chip: .*; accepted: an arch or name, a platform, an emulated chip"):
        multiprocessors(chip=chip)


@pytest.mark.parametrize("number", [0, -1, 1025, 1.5])
def test_multiprocessors_that_are_none(number: object) -> None:
    with pytest.raises(ValueError, match="multiprocessors"):
        device("sm_90a", number)  # type: ignore[arg-type]


def test_another_arch() -> None:
    with pytest.raises(ValueError, match="chip: 'B2000'; accepted: sm_90a"):
        multiprocessors(chip="B2000")
    with pytest.raises(ValueError, match="chip: 'gfx950'; accepted: sm_90a"):
        multiprocessors(chip=parse_platform("gfx950"))
