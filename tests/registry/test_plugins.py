from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from msa_ops.registry import Band, Between, Code, plugins
from msa_ops.registry import platform as platforms
from msa_ops.registry.overrides import AUTOMATIC
from msa_ops.registry.selection import Selector
from tests.registry import fixtures


class Point(EntryPoint):
    """An entry point whose target is given directly."""

    def __new__(cls, name: str, target: Callable[[], Any]) -> Point:
        return super().__new__(cls)

    def __init__(self, name: str, target: Callable[[], Any]) -> None:
        super().__init__(name, "somewhere:backends", plugins.GROUP)
        vars(self)["target"] = target

    def load(self) -> Callable[[], Any]:
        return vars(self)["target"]


def test_a_good_plugin_registers_and_loading_again_changes_nothing() -> None:
    store = fixtures.store()
    point = Point("good", lambda: [fixtures.backend("extra", ["cpu"], provider="good")])
    plugins.load(store, [point], None)
    generation = store.generation
    plugins.load(store, [point], None)
    assert store.generation == generation
    assert any(backend.name == "extra" for backend in store.backends("probe"))
    assert list(store.failures()) == []


def raising() -> list[Any]:
    raise RuntimeError("no licence found")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (raising, "RuntimeError: no licence found"),
        (lambda: ["text"], "returned str"),
        (lambda: None, "TypeError"),
        (lambda: [fixtures.backend("reference", ["gfx950"])], "another backend 'reference'"),
    ],
)
def test_a_bad_plugin_is_visible_and_harms_nobody(target: Callable[[], Any], said: str) -> None:
    store = fixtures.store()
    good = Point("good", lambda: [fixtures.backend("extra", ["cpu"])])
    before = {backend.name for backend in store.backends("probe")}
    plugins.load(store, [Point("bad", target), good], None)
    ((provider, refusal),) = store.failures()
    assert provider == "bad" and refusal.code is Code.PLUGIN and said in refusal.message
    assert {backend.name for backend in store.backends("probe")} == before | {"extra"}


def test_a_plugin_registers_all_of_its_backends_or_none() -> None:
    store = fixtures.store()
    records = [fixtures.backend("one", ["cpu"]), fixtures.backend("reference", ["gfx950"])]
    plugins.load(store, [Point("half", lambda: records)], None)
    assert "one" not in {backend.name for backend in store.backends("probe")}


def test_the_allow_list_keeps_others_out_and_says_so() -> None:
    store = fixtures.store()
    points = [Point(name, lambda n=name: [fixtures.backend(n, ["cpu"])]) for name in ("aa", "bb")]
    plugins.load(store, points, "bb")
    names = {backend.name for backend in store.backends("probe")}
    assert "bb" in names and "aa" not in names
    ((provider, refusal),) = store.failures()
    assert provider == "aa" and "MSA_OPS_PLUGINS" in refusal.hint


def test_an_installed_package_brings_a_backend(tmp_path: Path) -> None:
    """A real distribution on the path of a fresh process, found through its entry points."""
    (tmp_path / "acme_kernels.py").write_text(
        textwrap.dedent(
            """
            from msa_ops.registry import Backend, Band

            def backends():
                return [Backend(op="rms_norm", name="acme", target="acme_kernels:run", archs=frozenset({"cpu"}),
                                band=Band.PLUGIN, provider="acme-kernels")]

            def run(args, outs):
                outs[0].fill_(42)
            """
        )
    )
    info = tmp_path / "acme_kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kernels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[msa_ops.backends]\nacme = acme_kernels:backends\n")
    code = (
        "import torch, msa_ops; x = torch.ones(2, 8); w = torch.zeros(8);"
        "print(msa_ops.rms_norm(x, w)[0, 0].item(), msa_ops.explain('rms_norm', 'cpu').choice,"
        "msa_ops.rms_norm(x, w, backend='reference')[0, 0].item())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    value, choice, reference = done.stdout.split()
    assert float(value) == 42 and choice == "acme"
    assert float(reference) == pytest.approx(1, abs=1e-5)
    blocked = subprocess.run(
        [sys.executable, "-c", "import msa_ops; print(msa_ops.explain('rms_norm', 'cpu'))"],
        env={**environment, "MSA_OPS_PLUGINS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rms_norm on cpu" in blocked.stdout and "plugin acme: not loaded" in blocked.stdout


def exiting() -> list[Any]:
    sys.exit("needs a licence")


def test_a_plugin_that_exits_takes_nobody_with_it() -> None:
    store = fixtures.store()
    plugins.load(store, [Point("bad", exiting)], None)
    ((provider, refusal),) = store.failures()
    assert provider == "bad" and "SystemExit: needs a licence" in refusal.message


def failing(platform: Any, facts: Any) -> list[Any]:
    raise KeyError("no such fact")


@pytest.mark.parametrize(
    "broken", [{"predicate": failing}, {"limits": (("kv_format", Between(1, 2)),)}], ids=["predicate", "limit"]
)
def test_a_plugin_whose_predicate_fails_is_refused_and_says_why(broken: dict[str, Any]) -> None:
    store = fixtures.store()
    record = fixtures.backend("broken", ["cpu"], band=Band.PLUGIN, provider="acme", **broken)
    plugins.load(store, [Point("acme", lambda: [record])], None)
    (refusal,) = record.call_refusals(platforms.CPU, fixtures.Facts())
    assert refusal.code is Code.PLUGIN and "predicate of broken failed" in refusal.message
    chosen = Selector(store).choose("probe", platforms.CPU, AUTOMATIC, fixtures.Facts)
    assert chosen.name != "broken"
    with pytest.raises((KeyError, TypeError)):  # a fault of this package's own is not hidden
        dataclasses.replace(record, provider="msa_ops").call_refusals(platforms.CPU, fixtures.Facts())


def test_a_plugin_does_not_pass_for_this_package() -> None:
    store = fixtures.store()
    plugins.load(store, [Point("acme", lambda: [fixtures.backend("extra", ["cpu"], provider="msa_ops")])], None)
    (extra,) = (backend for backend in store.backends("probe") if backend.name == "extra")
    assert extra.provider == "acme"


def test_a_plugin_may_call_an_op_while_it_loads(tmp_path: Path) -> None:
    """It used to wait for itself for ever."""
    (tmp_path / "eager.py").write_text(
        "import torch, msa_ops\n"
        "def backends():\n"
        "    msa_ops.rms_norm(torch.ones(2, 8), torch.zeros(8))\n"
        "    return [msa_ops.registry.Backend(op='rms_norm', name='eager', target='eager:run',\n"
        "            archs=frozenset({'cpu'}), band=msa_ops.registry.Band.PLUGIN)]\n"
        "def run(args, outs):\n"
        "    outs[0].fill_(42)\n"
    )
    info = tmp_path / "eager-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: eager\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[msa_ops.backends]\neager = eager:backends\n")
    code = "import torch, msa_ops; print(msa_ops.rms_norm(torch.ones(2, 8), torch.zeros(8))[0, 0].item())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert float(done.stdout) == 42
