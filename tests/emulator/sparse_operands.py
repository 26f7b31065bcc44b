"""Sparse operands of mma.sp and wgmma.mma_async.sp: which elements are kept, and the metadata that says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
PAIRS = [(first, second) for first in range(4) for second in range(4) if first != second]
ASCENDING = [pair for pair in PAIRS if pair[0] < pair[1]]


@dataclass(frozen=True)
class Sparse:
    """Rows of k elements; nibbles: [rows][chunks]."""

    kind: str
    k: int
    nibbles: NDArray[np.uint32]

    def places(self) -> NDArray[np.int64]:
        """[rows][k / 2]: where each kept element stands in its row."""
        low, high = (self.nibbles & 3).astype(np.int64), (self.nibbles >> 2).astype(np.int64)
        chunks = np.arange(self.nibbles.shape[1])
        if self.kind == "tf32":
            return chunks * 2 + (self.nibbles == 0b1110)
        if self.kind in ("s4", "u4"):
            parts = [2 * low, 2 * low + 1, 2 * high, 2 * high + 1]
            return (np.stack(parts, -1) + 8 * chunks[:, None]).reshape(len(low), -1)
        return (np.stack([low, high], -1) + 4 * chunks[:, None]).reshape(len(low), -1)

    def whole(self, kept: Array) -> Array:
        """[rows][k] with zeros."""
        made = np.zeros((len(kept), self.k), kept.dtype)
        np.put_along_axis(made, self.places(), kept, 1)
        return made

    def words(self, selector: int) -> NDArray[np.uint32]:
        """A word for each lane: 32 lanes for 16 rows. Lanes that give no metadata have a word that means nothing."""
        rows, chunks = self.nibbles.shape
        words = np.full(rows * 2, 0x66666666, np.uint32)
        lanes = {4: 1, 8: 2, 16: 4}[chunks]  # of four
        for row in range(rows):
            first = row // 16 * 32 + row % 8 * 4 + selector * lanes % 4
            for chunk in range(chunks):
                half = row // 8 % 2
                if lanes == 4 or (lanes == 2 and self.kind[1:] in ("4", "8")):  # integers
                    lane, bit = first + half + chunk // 8 * 2, chunk % 8 * 4
                else:
                    lane, bit = first + chunk // 4, half * 16 + chunk % 4 * 4
                words[lane] = words[lane] & ~np.uint32(15 << bit) | self.nibbles[row, chunk] << np.uint32(bit)
        return words


def draw_sparse(rng: np.random.Generator, kind: str, k: int, *, ordered: bool, rows: int = 16) -> Sparse:
    chunk = {"tf32": 2, "s4": 8, "u4": 8}.get(kind, 4)
    pairs = ASCENDING if ordered else PAIRS
    codes = [0b0100, 0b1110] if kind == "tf32" else [second << 2 | first for first, second in pairs]
    return Sparse(kind, k, rng.choice(codes, (rows, k // chunk)).astype(np.uint32))
