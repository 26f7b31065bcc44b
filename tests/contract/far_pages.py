"""Caches of many gigabytes of address space and few of memory, for page offsets beyond 2^31 bytes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor


@contextlib.contextmanager
def sparse_pages(num_pages: int, page_bytes: int, page_stride: int) -> Iterator[Tensor]:
    """uint8 [num_pages, page_bytes] with the given stride over a sparse file; untouched pages cost nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache"
        size = num_pages * page_stride
        with path.open("wb") as file:
            file.truncate(size)
        memory = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
        yield memory.as_strided((num_pages, page_bytes), (page_stride, 1))
