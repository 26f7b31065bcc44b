"""The kernel languages: for each the module that knows its compiler, its files and its table."""

from __future__ import annotations

from typing import Any

from msa_ops.build import cute_kernels, flydsl_kernels

LANGUAGES: dict[str, Any] = {"cute": cute_kernels, "flydsl": flydsl_kernels}
