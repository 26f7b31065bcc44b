from __future__ import annotations

import pytest
import torch

from msa_ops.registry import FEATURES, SIMULATED
from msa_ops.registry import platform as platforms


def test_every_simulated_chip_parses_to_itself_and_is_interned() -> None:
    for name in SIMULATED:
        chip = platforms.parse(name)
        assert chip.arch == name and chip.simulated
        assert chip is platforms.parse(name)
        assert chip.features <= set(FEATURES)


def test_features_follow_the_instruction_sets_not_the_arch_number() -> None:
    has = {name: platforms.parse(name).features for name in SIMULATED}
    assert [name for name in SIMULATED if "qmul4" in has[name]] == ["sm_100a", "sm_103a"]
    assert [name for name in SIMULATED if "fhfma2" in has[name]] == ["sm_107a"]
    assert [name for name in SIMULATED if "tcgen05_ld_red" in has[name]] == ["sm_103a", "sm_107a"]
    assert [name for name in SIMULATED if "tcgen05" in has[name]] == ["sm_100a", "sm_103a", "sm_107a"]


def test_versions_can_be_set() -> None:
    chip = platforms.parse("sm_103a, cuda=12.9")
    assert chip.version("cuda") == (12, 9)
    assert str(chip) == "sm_103a, cuda 12.9 (simulated)"
    assert platforms.parse("sm_103a, cuda 12.9").version("cuda") == (12, 9)


@pytest.mark.parametrize(
    "text", ["sm_42", "", "sm_103a, rocm=7", "cpu, cuda=13.4", "sm_103a, cuda=new", "gfx950, cuda"]
)
def test_bad_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"platform:|version:"):
        platforms.parse(text)


def test_cpu_device_is_real() -> None:
    chip = platforms.of_device(torch.device("cpu"))
    assert chip.arch == "cpu" and not chip.simulated


def test_other_devices_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="accepted: cpu, cuda"):
        platforms.of_device(torch.device("xpu"))


@pytest.mark.parametrize(
    ("chip", "arch"), [("h100", "sm_90a"), ("B200", "sm_100a"), ("gb300", "sm_103a"), ("MI355X", "gfx950")]
)
def test_chips_go_by_their_names_too(chip: str, arch: str) -> None:
    assert platforms.parse(chip) is platforms.parse(chip) and platforms.parse(chip).arch == arch
