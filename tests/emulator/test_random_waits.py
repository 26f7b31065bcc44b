"""Random programs of divergent warps that set and await flags: those that threads of their own would finish do finish,
the others are a deadlock at once.

A flag is set once and for all, so that whether all threads end does not depend on their order, and can be told by
letting each thread run until it waits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

FLAGS = 6
LIMIT = 20_000_000


@dataclass
class Program:
    """PTX text, and for each thread what it does: ("set" or "wait", flag)."""

    threads: int
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    steps: list[list[tuple[str, int]]] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    barriers: set[int] = field(default_factory=set)

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"


def place(flag: int) -> tuple[str, str]:
    """The first flags are in global, the next ones in shared memory, the last ones mbarriers."""
    return (f"[%rd0+{4 * flag}]", "global") if flag < 2 else (f"[flags+{4 * flag}]", "shared")


def add_wait(program: Program, chance: random.Random, lanes: list[int], flag: int) -> None:
    again = program.label()
    where, space = place(flag)
    if flag >= 4:
        kind = chance.choice(["test_wait", "try_wait"])
        program.lines += [
            f"{again}: mbarrier.{kind}.parity.shared.b64 %p2, [bars+{8 * flag}], 0;",
            f"@!%p2 bra {again};",
        ]
    else:
        program.lines += [
            f"{again}: ld.volatile.{space}.b32 %r3, {where};",
            "setp.eq.u32 %p2, %r3, 0;",
            f"@%p2 bra {again};",
        ]
    for thread in lanes:
        program.steps[thread].append(("wait", flag))


def add_set(program: Program, chance: random.Random, lanes: list[int], flag: int) -> None:
    """By one thread, if the flag is an mbarrier, which may be set once."""
    where, space = place(flag)
    if flag < 4:
        program.lines += ["mov.u32 %r4, 1;", f"st.volatile.{space}.b32 {where}, %r4;"]
    elif flag in program.barriers or not lanes:
        return
    else:
        program.barriers.add(flag)
        lanes = [chance.choice(lanes)]
        program.lines += [
            f"setp.eq.u32 %p3, %r0, {lanes[0]};",
            f"@%p3 mbarrier.arrive.shared.b64 %rd1, [bars+{8 * flag}];",
        ]
    for thread in lanes:
        program.steps[thread].append(("set", flag))


def add_part(program: Program, chance: random.Random, lanes: list[int], depth: int) -> None:
    for _ in range(chance.randint(1, 3)):
        lanes = [thread for thread in lanes if thread not in program.ended]
        choice = chance.random()
        if depth > 0 and choice < 0.45:
            bound = chance.randrange(1, program.threads)
            inside = [thread for thread in lanes if thread < bound]
            outside = [thread for thread in lanes if thread >= bound]
            other, end = program.label(), program.label()
            program.lines += [f"setp.lt.u32 %p1, %r0, {bound};", f"@!%p1 bra {other};"]
            add_part(program, chance, inside, depth - 1)
            if chance.random() < 0.2:
                program.lines.append("ret;")
                program.ended.update(inside)
            else:
                program.lines.append(f"bra {end};")
            program.lines.append(f"{other}:")
            if chance.random() < 0.6:
                add_part(program, chance, outside, depth - 1)
            program.lines.append(f"{end}:")
        elif choice < 0.7:
            add_wait(program, chance, lanes, chance.randrange(FLAGS))
        else:
            add_set(program, chance, lanes, chance.randrange(FLAGS))


def make(seed: int) -> Program:
    chance = random.Random(seed)
    program = Program(chance.choice([32, 64, 96]))
    program.steps = [[] for _ in range(program.threads)]
    add_part(program, chance, list(range(program.threads)), 3)
    return program


def finishes(program: Program) -> bool:
    """Whether every thread ends if each runs as far as it can."""
    known: set[int] = set()
    at = [0] * program.threads
    moved = True
    while moved:
        moved = False
        for thread, steps in enumerate(program.steps):
            while at[thread] < len(steps) and (steps[at[thread]][0] == "set" or steps[at[thread]][1] in known):
                known.add(steps[at[thread]][1])
                at[thread] += 1
                moved = True
    return all(place == len(steps) for place, steps in zip(at, program.steps, strict=True))


def text_of(program: Program) -> str:
    start = ["setp.eq.u32 %p1, %r0, 0;", "mov.u32 %r1, 0;"]
    for flag in range(2, FLAGS):
        start.append(f"@%p1 mbarrier.init.shared.b64 [bars+{8 * flag}], 1;" if flag >= 4 else
                     f"@%p1 st.shared.b32 [flags+{4 * flag}], %r1;")  # fmt: skip
    start.append("bar.sync 0;")
    declarations = f".shared .align 8 .b8 bars[{8 * FLAGS}];\n.shared .align 8 .b8 flags[{4 * FLAGS}];\n"
    return kernel("\n".join([*start, *program.lines]), declarations=declarations)


def check(number: int, **options: Any) -> bool:
    program = make(number)
    expected = finishes(program)
    text = text_of(program)
    try:
        run_ptx(text, "k", 1, program.threads, [np.zeros(FLAGS, np.uint32)], max_instructions=LIMIT, **options)
    except EmulatorFault as fault:
        assert fault.kind == "deadlock", f"program {number}: {fault}\n{text}"
        assert not expected, f"program {number}: {fault}\n{text}"
    else:
        assert expected, f"program {number}: ends\n{text}"
    return expected


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_threads_that_end_end_and_others_are_a_deadlock(first: int) -> None:
    ends = [check(number, seed=None if number % 3 else number) for number in range(first, first + 20)]
    assert any(ends)
    assert not all(ends)
