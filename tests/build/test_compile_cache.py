from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from msa_ops.build import compile_cache

NAMES = ["k.o", "k.json"]


class Cache:
    """A cache with one key, and builds that are counted."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.target = folder / "cache", folder / "out"
        self.entry = self.cache / "key"
        self.target.mkdir()
        self.builds = 0

    def build(self, work: Path) -> str | None:
        self.builds += 1
        for name in NAMES:
            (work / name).write_text(f"content of {name}")
        (work / "rest").write_text("not wanted")
        return None

    def fill(self) -> str | None:
        return compile_cache.fill(self.target, self.cache, "key", NAMES, self.build)

    def right(self) -> bool:
        return all((self.target / name).read_text() == f"content of {name}" for name in NAMES)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_what_is_there_is_not_built_again(cache: Cache) -> None:
    assert cache.fill() is None and cache.right()
    before = (cache.target / "k.o").stat().st_mtime_ns
    (cache.target / "k.json").write_text("spoilt")
    assert cache.fill() is None and cache.right()
    assert cache.builds == 1 and (cache.target / "k.o").stat().st_mtime_ns == before
    assert sorted(file.name for file in cache.entry.iterdir()) == ["k.json", "k.o", "sha256"]
    subprocess.run(["sha256sum", "--check", "--strict", "sha256"], cwd=cache.entry, check=True)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5])


def _drop(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("name", [*NAMES, "sha256"])
@pytest.mark.parametrize("harm", [_cut, _drop])
def test_an_entry_that_is_not_whole_is_made_anew(cache: Cache, name: str, harm: object) -> None:
    cache.fill()
    harm(cache.entry / name)  # type: ignore[operator]
    for _ in range(2):
        assert cache.fill() is None and cache.right()
    assert cache.builds == 2
    assert [folder.name for folder in cache.cache.iterdir()] == ["key"]


def test_a_failure_enters_nothing(cache: Cache) -> None:
    assert compile_cache.fill(cache.target, cache.cache, "key", NAMES, lambda work: "no") == "no"
    assert not list(cache.cache.iterdir()) and not list(cache.target.iterdir())


@pytest.mark.parametrize("broken", [False, True])
def test_builds_of_the_same_at_the_same_time(cache: Cache, broken: bool) -> None:
    if broken:
        cache.fill()
        _cut(cache.entry / "k.o")
    together = threading.Barrier(4)
    said = []

    def one(target: Path) -> None:
        target.mkdir()

        def build(work: Path) -> str | None:
            together.wait(20)
            return cache.build(work)

        said.append(compile_cache.fill(target, cache.cache, "key", NAMES, build))

    targets = [cache.target / str(i) for i in range(4)]
    threads = [threading.Thread(target=one, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [None] * 4
    assert all((target / name).read_text() == f"content of {name}" for target in targets for name in NAMES)
    assert [folder.name for folder in cache.cache.iterdir()] == ["key"]
    assert cache.fill() is None and cache.right()
