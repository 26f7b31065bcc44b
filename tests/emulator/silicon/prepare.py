"""What on_gpu.py needs, into a folder: `python -m tests.emulator.silicon.prepare FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.emulator.silicon import emulated, suite


def main(folder: str) -> None:
    programs = list(suite.programs())
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "suite.ptx").write_text(suite.module(programs))
    described = {}
    for program in programs:
        described[program.opcode] = [program.inputs, program.outputs, suite.digest(emulated.results(program))]
    Path(folder, "programs.json").write_text(json.dumps(described))
    print(f"{len(programs)} instructions")


if __name__ == "__main__":
    main(*sys.argv[1:])
