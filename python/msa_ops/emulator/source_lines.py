"""Notes of faults: the line of the source that the PTX was made of, or how to get it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from msa_ops._C import EmulatorFault

HINT = (
    'the PTX has no line information; compiled with cute.compile(..., options="--generate-line-info"), or with '
    "CUTE_DSL_LINEINFO=1 in the environment, the report has the lines of Python too"
)
HINT_FOR_BUILT = (
    "the PTX of this kernel has no line information; `python -m msa_ops.build --line-info --op OP --arch ARCH "
    "--out FOLDER`, and MSA_OPS_KERNELS=FOLDER in the environment, give the report lines of Python"
)
_LOC = re.compile(r"^\s*\.loc\s", re.MULTILINE)


@contextlib.contextmanager
def told(hint: str = HINT, kernel: str = "", place: str = "") -> Iterator[None]:
    """An EmulatorFault that leaves the block says in a note what its `source` is. If its text, made by CuTe-DSL, has
    no line information, the note is the hint.

    kernel: the name by which the user knows it, in the place of its name in PTX. place: where its text is.
    """
    try:
        yield
    except EmulatorFault as fault:
        if kernel:
            fault.kernel = kernel
            fault.args = (str(fault).replace(f"[kernel {fault.entry},", f"[kernel {kernel},", 1),)
        if place:
            fault.add_note(f"text: {place}, entry {fault.entry}")
        if fault.source is not None:
            fault.add_note(f"source: {fault.source}")
        elif fault.ptx is not None and "cutlass" in fault.entry and not _LOC.search(fault.ptx):
            fault.add_note(f"source: {hint}")
        raise
