"""Tables of the multifunction unit, as an H200 gave them: what `rcp`, `rsqrt`, `sqrt` and `ex2` approximate.

unit_tables/NAME.xz holds the bits of the result for every mantissa (of rsqrt and sqrt in [1, 4), of ex2 for every
fraction), as the first one and the differences. They are unpacked when a kernel first needs them.
"""

from __future__ import annotations

from pathlib import Path

from msa_ops import _C

USES = {
    "rcp": ("rcp.approx", "div.approx", "div.full"),
    "rsqrt": ("rsqrt.approx",),
    "sqrt": ("sqrt.approx",),
    "ex2": ("ex2.approx",),
}
"""Opcodes that read each table."""

_loaded: set[str] = set()


def load_for(ptx: str) -> None:
    """Makes the tables that the text may need available to the emulator."""
    if ".approx" not in ptx and "div.full" not in ptx:
        return
    import lzma  # not at every import of the package

    for name, opcodes in USES.items():
        if name not in _loaded and any(opcode in ptx for opcode in opcodes):
            _C.set_unit_table(
                name, lzma.decompress((Path(__file__).parent / "unit_tables" / f"{name}.xz").read_bytes())
            )
            _loaded.add(name)
