"""What the documents show runs, and what they link exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/ops.md", "docs/serving.md"])
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = blocks(ROOT / name)
    assert found
    for code in found:
        exec(compile(code, name, "exec"), {})
    assert capsys.readouterr().out


def test_the_plugin_example_is_right() -> None:
    import torch

    import msa_ops
    from msa_ops.registry import STORE

    record, target = blocks(ROOT / "docs" / "registry.md")
    names: dict[str, object] = {}
    exec(compile(record, "docs/registry.md", "exec"), names)
    (backend,) = names["backends"]()
    assert backend.op in STORE.ops()
    assert {name for name, _ in backend.limits} <= set(STORE.op(backend.op).facts_type.__dataclass_fields__)
    exec(compile(target, "docs/registry.md", "exec"), names)
    for options in ({}, {"residual": True}, {"gemma": False}, {"dtype": "bfloat16"}):
        given = {"dtype": "float32", "hidden": 64, **options}
        args, same = (STORE.op("rms_norm").generate(0, **given) for _ in range(2))
        out = torch.empty_like(args.x)
        names["run"](args, (out,))
        expected = msa_ops.rms_norm(same.x, same.weight, gemma=same.gemma, residual=same.residual)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(args.residual, same.residual)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_linked_files_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_every_environment_variable_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))
    found = set(re.findall(r"\"(MSA_OPS_[A-Z_]+)\"", sources))
    text = (ROOT / "docs" / "registry.md").read_text()
    assert found and not {name for name in found if name not in text}


def test_the_emulator_examples_run() -> None:
    op, own = blocks(ROOT / "docs" / "emulator.md")[:2]
    names: dict[str, object] = {}
    exec(compile(own, "docs/emulator.md", "exec"), names)
    data, report = names["data"], names["report"]
    assert list(data) == list(range(0, 128, 2))  # type: ignore[call-overload]
    assert report.warp_instructions["add.s32"] == 2  # type: ignore[attr-defined]
    from msa_ops import _C

    if not any(name.startswith("quantize_nvfp4__") and arch == "sm_90a" for name, arch in _C.compiled_kernels()):
        pytest.skip("this build of msa_ops holds no kernels")
    exec(compile(op, "docs/emulator.md", "exec"), {})


def test_the_cache_example_is_right() -> None:
    (code,) = blocks(ROOT / "docs" / "cache.md")
    names: dict[str, object] = {}
    exec(compile(code, "docs/cache.md", "exec"), names)
    spec = names["spec"]
    assert (len(spec.members), spec.block_bytes()) == (125, 1_822_720)  # type: ignore[attr-defined]
