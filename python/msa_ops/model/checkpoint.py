"""The files of a checkpoint: which tensors they hold, seen from the headers alone, and reading one tensor."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from msa_ops.model.errors import CheckpointError, MissingPackageError, listing
from msa_ops.strict_json import read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@dataclass(frozen=True)
class Stored:
    """A tensor of a checkpoint: its name there, its file, its dtype in safetensors' spelling, and its shape."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} is {self.dtype} {list(self.shape)}"


def package(module: str = "safetensors") -> Any:
    """The module `safetensors`, or one inside it. Raises MissingPackageError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            "safetensors is not installed; checkpoints need it: pip install 'msa-ops[model]'"
        ) from error


def shard_files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The safetensors files of a checkpoint, and the index's map from tensor to file (empty if there is no index).

    Raises CheckpointError if the folder, an index entry or a file is not there.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: not a folder; accepted: a checkpoint with config.json and safetensors files")
    index, single = folder / INDEX, folder / SINGLE
    if not index.is_file():
        if not single.is_file():
            raise CheckpointError(f"{folder}: holds neither {INDEX} nor {SINGLE}")
        return [single], {}
    if single.is_file():
        raise CheckpointError(f"{folder}: holds both {INDEX} and {SINGLE}; accepted: one of them")
    try:
        weight_map = read_json(index)["weight_map"]
        names = sorted({str(file) for file in weight_map.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: not an index of safetensors files: {error}") from error
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise CheckpointError(f"{index}: names files outside the folder: {listing(outside)}")
    absent = [name for name in names if not _is_file(folder / name)]
    if absent:
        raise CheckpointError(f"{folder}: {len(absent)} of {len(names)} files are missing: {listing(absent)}")
    return [folder / name for name in names], {str(name): str(file) for name, file in weight_map.items()}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or that no file can have
        return False


def headers(files: list[Path]) -> Iterator[Stored]:
    """All tensors of the files. Reads headers only. Raises CheckpointError for a file that is cut or damaged."""
    safetensors = package()
    for file in files:
        try:
            with safetensors.safe_open(file, framework="pt") as shard:
                for name in shard.keys():
                    piece = shard.get_slice(name)
                    yield Stored(name, file, piece.get_dtype(), tuple(piece.get_shape()))
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(f"{file}: cut or damaged: {error}") from error


def read(file: Path, names: list[str]) -> Iterator[tuple[str, Tensor]]:
    """The named tensors of one file, one after the other; the file is mapped, so that none stays in memory."""
    safetensors = package()
    try:
        with safetensors.safe_open(file, framework="pt") as shard:
            for name in names:
                yield name, shard.get_tensor(name)
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{file}: cut or damaged: {error}") from error
