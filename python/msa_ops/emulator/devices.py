"""What an entry may be given as the chip that it emulates."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeAlias

from msa_ops.emulator.arguments import text, whole
from msa_ops.registry.platform import Platform, parse

if TYPE_CHECKING:
    from msa_ops.emulator.chip import VirtualChip

ChipLike: TypeAlias = "str | Platform | VirtualChip"


def device(chip: ChipLike, multiprocessors: int | None = None) -> tuple[str, int | None]:
    """Arch and number of multiprocessors; None: the chip's own.

    chip: an arch or a name ("sm_90a", "H200"), a platform, or what `msa_ops.emulate` gives: its platform counts, not
        its options.
    multiprocessors: another number than the chip has.

    Raises TypeError for anything else, ValueError for a number outside of 1 to 1024. Whether the arch is emulated is
    checked where it is used.
    """
    if multiprocessors is not None:
        multiprocessors = whole("multiprocessors", multiprocessors, 1, 1024)
    if isinstance(chip, str):
        text("chip", chip)
        with contextlib.suppress(ValueError):  # of a name that nobody knows the place of use says what it accepts
            chip = parse(chip).arch
        return str(chip), multiprocessors
    platform = chip if isinstance(chip, Platform) else getattr(chip, "platform", None)
    if not isinstance(platform, Platform):
        raise TypeError(f"chip: {type(chip).__name__}; accepted: an arch or name, a platform, an emulated chip")
    return platform.arch, multiprocessors or platform.multiprocessors or None
