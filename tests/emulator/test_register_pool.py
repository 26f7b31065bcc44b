"""setmaxnreg: warps of a warpgroup give registers back to their block's pool, and wait for those that they ask for."""

from __future__ import annotations

import re

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

SEEDS = (None, 1, 2, 3)
# ptxas 13.5 -v says of a kernel of these threads and blocks that asks for 232: .maxntid, .minnctapersm, registers.
OF_PTXAS = [
    (384, 1, 168), (256, 1, 232), (128, 2, 232), (128, 4, 128), (480, 1, 128), (416, 1, 128), (300, 1, 168),
    (192, 2, 168), (640, 1, 96), (608, 1, 96), (1024, 1, 64), (512, 3, 40), (384, 2, 80),
]  # fmt: skip
GROUPS = "shr.u32 %r1, %r0, 7; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 2; shr.u32 %r2, %r0, 5;\n"
CHANGE = "setmaxnreg.{way}.sync.aligned.u32 {n};"


def change(way: str, n: int) -> str:
    return CHANGE.replace("{way}", way).replace("{n}", str(n))


def two_and_one(give: int, take: int, first: str = "") -> str:
    """The last of three warpgroups gives registers back, the others ask for more."""
    return (
        GROUPS
        + f"{first}@%p2 bra GIVE;\n{change('inc', take)} // here\nbra DONE;\nGIVE: {change('dec', give)}\nDONE:\n"
    )


def launch(body: str, threads: int, directives: str, seed: int | None) -> None:
    run_ptx(kernel(body, 1, directives=directives), "k", 1, threads, [np.zeros(64, np.int32)], seed=seed)


HALF = ".maxntid 384, 1, 1\n.minnctapersm 1\n"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_given_back_is_there_for_others(seed: int | None) -> None:
    launch(two_and_one(40, 232), 384, HALF, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_asks_for_too_many_waits_for_ever(seed: int | None) -> None:
    body = two_and_one(80, 224)
    with pytest.raises(EmulatorFault) as caught:
        launch(body, 384, HALF, seed)
    assert caught.value.kind == "deadlock" and caught.value.line == line_of(kernel(body, 1, directives=HALF), "// here")
    found = re.findall(
        r"waits for 224 registers a thread; it has 168, and the block's pool (\d+) for one warp", str(caught.value)
    )
    assert found == ["16", "16"]  # 4 times 88 are given back and 6 times 56 taken; two of the eight warps wait


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_between_who_gives_and_who_asks(seed: int | None) -> None:
    """The others come to the barrier only with their registers, which are given back behind it."""
    right = GROUPS + f"bar.sync 0;\n@%p2 bra GIVE;\n{change('inc', 232)}\nbra DONE;\nGIVE: {change('dec', 40)}\nDONE:\n"
    wrong = (
        GROUPS
        + f"@%p2 bra GIVE;\n{change('inc', 232)}\nbar.sync 0;\nbra DONE;\n"
        + f"GIVE: bar.sync 0; {change('dec', 40)}\nDONE:\n"
    )
    launch(right, 384, HALF, seed)
    with pytest.raises(EmulatorFault, match=r"deadlock.*waits for 232 registers"):
        launch(wrong, 384, HALF, seed)


@pytest.mark.parametrize(("threads", "blocks", "registers"), OF_PTXAS)
def test_registers_at_the_start_are_those_of_ptxas(threads: int, blocks: int, registers: int) -> None:
    directives = f".maxntid {threads}, 1, 1\n.minnctapersm {blocks}\n"
    body = f"mov.b32 %r1, 1;\n{change('dec', registers)}\nbar.sync 0;\n{change('inc', 232)}\n"
    if registers == 232:
        launch(body, threads, directives, None)
        return
    with pytest.raises(EmulatorFault, match=f"waits for 232 registers a thread; it has {registers}"):
        launch(body, threads, directives, None)


def test_other_directives() -> None:
    body = f"{change('dec', 96)}\nbar.sync 0;\n{change('inc', 232)}\n"
    with pytest.raises(EmulatorFault, match="waits for 232 registers a thread; it has 96"):
        launch(body, 128, ".maxnreg 128\n", None)
    with pytest.raises(EmulatorFault, match="waits for 232 registers a thread; it has 96"):
        launch(body, 512, ".reqntid 512, 1, 1\n.minnctapersm 1\n", None)
    for directives in ("", ".maxntid 512, 1, 1\n"):  # ptxas ignores setmaxnreg, as it knows no number to start from
        launch(body, 512, directives, None)


MISTAKES = {
    "no_multiple_of_eight": (change("dec", 44), change("dec", 40), "44 registers; accepted"),
    "too_few": (change("dec", 16), change("dec", 24), "16 registers; accepted"),
    "more_by_dec": (change("dec", 176), change("dec", 168), "a decrease to 176 registers; the warp has 168"),
    "fewer_by_inc": (change("inc", 160), change("inc", 168), "an increase to 160 registers; the warp has 168"),
    "one_warp_alone": (
        f"@%p3 {change('dec', 40)}", change("dec", 40), "the warp ends without|has ended without it"
    ),
    "another_way": (
        f"@%p3 bra LESS;\n{change('inc', 168)}\nbra DONE;\nLESS: {change('dec', 168)}\nDONE:",
        f"@%p3 bra LESS;\n{change('dec', 168)}\nbra DONE;\nLESS: {change('dec', 168)}\nDONE:",
        "(a decrease|an increase) where warp . of the warpgroup has asked for an? (increase|decrease)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found_and_twins_pass(name: str) -> None:
    wrong, right, message = MISTAKES[name]
    start = "shr.u32 %r2, %r0, 5; setp.eq.u32 %p3, %r2, 1;\n"
    # 232 asked for somewhere: else ptxas starts with no more than the most that is asked for.
    never = f"\nsetp.gt.u32 %p4, %r0, 2000; @!%p4 bra END; {change('inc', 232)}\nEND:\n"
    for seed in SEEDS:
        launch(start + right + never, 384, HALF, seed)
        with pytest.raises(EmulatorFault, match=message) as caught:
            launch(start + wrong + never, 384, HALF, seed)
        assert caught.value.kind == "register pool"
