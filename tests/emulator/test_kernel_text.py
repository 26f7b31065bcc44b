"""The PTX of compiled kernels is found: in a named folder, else in the archive of the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from msa_ops import _C
from msa_ops.build.driver import write_texts
from msa_ops.emulator import kernel_text


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation whose archive holds two kernels."""
    folder = tmp_path / "kernels"
    (folder / "sm_90a").mkdir(parents=True)
    for name in ("b__one__sm_90a", "a__two__sm_90a"):
        (folder / "sm_90a" / f"{name}.ptx").write_text(f"// {name}\n" * 9)
    write_texts(folder, list(folder.glob("sm_90a/*.ptx")))

    class Module:
        __file__ = str(folder / "_C.so")

    monkeypatch.setattr(kernel_text, "_C", Module)
    monkeypatch.delenv(kernel_text.ENVIRONMENT, raising=False)
    kernel_text._archive.cache_clear()
    yield folder
    kernel_text._archive.cache_clear()


def test_archive(build: Path) -> None:
    assert kernel_text.ptx("a__two__sm_90a") == "// a__two__sm_90a\n" * 9
    with pytest.raises(NotImplementedError, match="kernel c__sm_90a: its PTX is not in this build"):
        kernel_text.ptx("c__sm_90a")


def test_same_bytes_again(build: Path) -> None:
    first = (build / kernel_text.ARCHIVE).read_bytes()
    for path in build.glob("*/*.ptx"):
        path.touch()
    write_texts(build, list(build.glob("sm_90a/*.ptx")))
    assert (build / kernel_text.ARCHIVE).read_bytes() == first


def test_named_folder_comes_first(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = tmp_path / "newer" / "sm_90a"
    newer.mkdir(parents=True)
    (newer / "a__two__sm_90a.ptx").write_text("newer")
    monkeypatch.setenv(kernel_text.ENVIRONMENT, str(newer.parent))
    assert kernel_text.ptx("a__two__sm_90a") == "newer"
    assert kernel_text.place("a__two__sm_90a") == str(newer / "a__two__sm_90a.ptx")
    assert kernel_text.place("b__one__sm_90a") == "b__one__sm_90a.ptx in the build's kernels_text.tar.xz"
    assert kernel_text.ptx("b__one__sm_90a").startswith("// b")


def test_build_without_kernels(build: Path) -> None:
    (build / kernel_text.ARCHIVE).unlink()
    kernel_text._archive.cache_clear()
    with pytest.raises(NotImplementedError, match="build the wheel with its kernels"):
        kernel_text.ptx("a__two__sm_90a")


def test_every_kernel_of_this_build_has_its_text() -> None:
    for name, _ in _C.compiled_kernels():
        assert ".entry" in kernel_text.ptx(name)


def test_a_named_folder_that_is_none(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build's own text in its place would be a silent answer to another question."""
    monkeypatch.setenv(kernel_text.ENVIRONMENT, str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"^MSA_OPS_KERNELS: .*none is no folder"):
        kernel_text.ptx("op__a__sm_90a")


def test_a_text_that_is_none(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel_text.ENVIRONMENT, str(build))
    (build / "sm_90a" / "op__x__sm_90a.ptx").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"^MSA_OPS_KERNELS: .*op__x__sm_90a\.ptx"):
        kernel_text.ptx("op__x__sm_90a")
