"""Token counts as facts: rounded up to a power of two, so that selection is cached for few values."""

from __future__ import annotations


def token_bucket(tokens: int) -> int:
    """The smallest power of two that is at least `tokens`; 0 for none."""
    return 1 << (tokens - 1).bit_length() if tokens else 0
