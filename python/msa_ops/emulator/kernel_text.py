"""The program text of the compiled kernels of this build, which the emulator executes.

The build leaves it beside the metadata, in one compressed archive (`ARCHIVE`), a member PREFIX.ptx a kernel. A folder
that `python -m msa_ops.build` filled, named by the environment variable MSA_OPS_KERNELS, comes first.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from msa_ops import _C

ARCHIVE = "kernels_text.tar.xz"
ENVIRONMENT = "MSA_OPS_KERNELS"


def ptx(kernel: str) -> str:
    """The PTX of a kernel by its name.

    Raises NotImplementedError if this installation does not hold it, ValueError for a folder or text that
    cannot be read.
    """
    path = _in_named_folder(kernel)
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{ENVIRONMENT}: {path}: {error}") from None
    text = _archive().get(f"{kernel}.ptx")
    if text is None:
        raise NotImplementedError(
            f"kernel {kernel}: its PTX is not in this build of msa_ops; build the wheel with its kernels"
        )
    return text


def place(kernel: str) -> str:
    """Where the text that `ptx` gives stands, for messages."""
    path = _in_named_folder(kernel)
    return f"{kernel}.ptx in the build's {ARCHIVE}" if path is None else str(path)


def _in_named_folder(kernel: str) -> Path | None:
    folder = os.environ.get(ENVIRONMENT)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise ValueError(f"{ENVIRONMENT}: {folder} is no folder; accepted: one that python -m msa_ops.build filled")
    path = Path(folder) / kernel.rpartition("__")[2] / f"{kernel}.ptx"
    return path if path.is_file() else None


@functools.cache
def _archive() -> dict[str, str]:
    import tarfile

    path = Path(_C.__file__).parent / ARCHIVE
    if not path.is_file():
        return {}
    with tarfile.open(path) as archive:
        return {
            member.name: file.read().decode()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }
