from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from msa_ops.build.unit import built_archs, families, units
from msa_ops.registry import STORE


def test_listing_the_kernels_imports_no_kernel_language() -> None:
    code = (
        "import sys; from msa_ops.build.unit import units; assert units(['sm_90a', 'gfx950']);"
        "assert not {'cutlass', 'cuda', 'flydsl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_families_belong_to_ops_and_names_are_unique() -> None:
    found = list(families())
    assert found
    assert {family.op for family in found} <= set(STORE.ops())
    names = [unit.name for unit in units(["sm_90a", "gfx950"])]
    assert len(names) == len(set(names))
    assert all(name.replace("_", "").isalnum() for name in names), "names become C symbols"


def test_every_compiled_backend_has_kernels_and_the_other_way_round() -> None:
    declared = {
        (backend.op, arch)
        for op in STORE.ops()
        for backend in STORE.backends(op)
        if backend.compiled
        for arch in backend.archs
    }
    built = {(family.op, arch) for family in families() for arch in family.archs}
    assert declared == built


def test_without_an_arch_everything_is_built() -> None:
    """The command's default, and what `make kernels` builds."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    found = re.search(r"^ARCHS \?= (.*)$", makefile, re.MULTILINE)
    assert found and tuple(found[1].split()) == built_archs()
    assert {"sm_90a", "sm_100a", "gfx950"} <= set(built_archs())


def test_unknown_arch() -> None:
    with pytest.raises(ValueError, match="unknown chip 'sm_42'"):
        units(["sm_42"])
