from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from msa_ops.build import sources, toolchain
from msa_ops.build.unit import Unit, units


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Unit:
    monkeypatch.setattr(toolchain, "dsl_version", lambda: "4.8.1")
    monkeypatch.setattr(toolchain, "tool_version", lambda name: "13.5.37")
    return units(["sm_90a"])[0]


def test_cache_key_follows_everything_that_matters(unit: Unit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {sources.cache_key(unit), sources.cache_key(replace(unit, arch="sm_100a"))}
    keys.add(sources.cache_key(next(u for u in units(["sm_90a"]) if u.name != unit.name)))
    monkeypatch.setattr(toolchain, "dsl_version", lambda: "4.9.0")
    keys.add(sources.cache_key(unit))
    source = tmp_path / "kernel.py"
    source.write_text("changed")
    monkeypatch.setattr(sources, "sources", lambda _: [source])
    keys.add(sources.cache_key(unit))
    keys.add(sources.cache_key(unit, line_info=True))
    assert len(keys) == 6
    assert sources.cache_key(unit) == sources.cache_key(unit)


def test_sources_hold_the_kernel_its_configurations_and_the_shared_atoms(unit: Unit) -> None:
    names = {f"{source.parent.name}/{source.name}" for source in sources.sources(unit)}
    kernel = unit.family.module.rpartition(".")[2]
    assert {f"{unit.family.op}/{kernel}.py", f"{unit.family.op}/{kernel}_configs.py", "common/scalar.py"} <= names


def test_sources_hold_what_is_imported_of_other_ops(unit: Unit) -> None:
    """A change there must not find an object of before in the cache."""
    names = {f"{source.parent.name}/{source.name}" for source in sources.sources(unit)}
    assert not any(name.startswith("sparse_attention/") for name in names)
    chosen = next(u for u in units(["sm_90a"]) if u.name == "sparse_attention__chosen_nvfp4__sm_90a")
    names = {f"{source.parent.name}/{source.name}" for source in sources.sources(chosen)}
    assert "tiled_attention/sm90_chosen.py" in names and "sparse_attention/combine.py" in names
    assert "sparse_attention/sm90.py" not in names
