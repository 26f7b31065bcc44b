from __future__ import annotations

from pathlib import Path

from tests.bindings import test_driver_runtime
from tests.bindings.test_driver_runtime import replay

pytestmark = test_driver_runtime.pytestmark
SCRATCH = """
def uses(x, codes, scales, scratch):
    note(position, (pointer(x), pointer(codes), pointer(scratch), 0, 0x3F800000, 64))
own = tensors()
def remember_of(num_bytes, rows):
    global own
    own = tensors(rows)
    x, codes, scales = own
    scratch = torch.empty(num_bytes, dtype=torch.uint8)
    with record() as launches:
        uses(x, codes, scales, scratch)
    assert calls.remember(own, {}, None, None, False, 0, (), scratch, 0, list(launches), None)
    return own
def in_stream(stream, *own):
    stand_in.set_stream(stream)
    say("in", stream)
    return call(*own)
"""


def memory(found: list[str]) -> list[str]:
    return [line for line in found if line.split()[0] in {"allocate", "free", "in", "then", "caught"}]


def test_calls_of_one_stream_share_a_workspace(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        SCRATCH
        + """
small, large = remember_of(1024, 4), remember_of(4096, 8)
stand_in.show_parameters(3)
for own in (small, large, small, large):
    in_stream(16, *own)
for own in (large, small):
    in_stream(17, *own)
""",
    )
    made = ["in 16", "allocate 1024", "in 16", "allocate 4096", "in 16", "in 16", "in 17", "allocate 4096", "in 17"]
    assert memory(found) == made, "of its own size in stream 16; in 17 the larger one serves both"
    used = [line.split(" context 100 ")[1].split()[2] for line in found if line.startswith("launch")]
    assert used[:2] == used[2:4] and used[4] == used[5] and len(set(used)) == 3


def test_a_captured_stream_has_workspaces_of_its_own(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        SCRATCH
        + """
own = remember_of(1024, 4)
in_stream(16, *own)
os.environ["CAPTURING"] = "1"
in_stream(16, *own)
del os.environ["CAPTURING"]
in_stream(16, *own)
""",
    )
    assert memory(found) == ["in 16", "allocate 1024", "in 16", "allocate 1024", "free 1024", "in 16"]


def test_a_call_while_another_is_launched_has_another_workspace(tmp_path: Path) -> None:
    """What a thread does while this one waits for the driver."""
    found = replay(
        tmp_path,
        SCRATCH
        + """
own = remember_of(1024, 4)
stand_in.show_parameters(3)
call(*own)
question = ctypes.CFUNCTYPE(ctypes.c_int)
@question
def at_launch():
    stand_in.ask_at_launches(None)
    call(*own)
    return 1
stand_in.ask_at_launches(ctypes.cast(at_launch, ctypes.c_void_p))
call(*own)
""",
    )
    assert memory(found) == ["allocate 1024"] * 2
    inner, outer = [line.split()[-1] for line in found if line.startswith("launch")][1:]
    assert inner != outer


def test_workspaces_are_dropped_where_memory_is_short_or_too_many_are_kept(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        SCRATCH
        + """
MiB = 1 << 20
first, second = remember_of(MiB, 1), remember_of(64 * MiB, 2)
third, huge = remember_of(96 * MiB, 3), remember_of(129 * MiB, 5)
in_stream(16, *first)
in_stream(16, *second)
in_stream(16, *third)
in_stream(16, *huge)
os.environ["FAIL"] = "allocate"
say("then", in_stream(17, *first))
""",
    )
    MiB = 1 << 20
    assert memory(found) == [
        *("in 16", f"allocate {MiB}"),
        *("in 16", f"allocate {64 * MiB}"),
        *("in 16", f"allocate {96 * MiB}", f"free {MiB}", f"free {64 * MiB}"),
        *("in 16", f"allocate {129 * MiB}", f"free {129 * MiB}"),
        *("in 17", f"free {96 * MiB}"),
        "then long way",
    ]


def test_no_more_than_sixteen_are_kept(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        SCRATCH
        + """
own = remember_of(1024, 4)
for stream in range(100, 118):
    in_stream(stream, *own)
""",
    )
    assert sum(line.startswith("allocate") for line in found) == 18 and found.count("free 1024") == 2


def test_a_failed_launch_drops_its_workspace(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        SCRATCH
        + """
own = remember_of(1024, 4)
for fail in ("cuLaunchKernelEx", ""):
    os.environ["FAIL"] = fail
    try:
        in_stream(16, *own)
    except RuntimeError:
        say("caught")
""",
    )
    assert memory(found) == ["in 16", "allocate 1024", "free 1024", "caught", "in 16", "allocate 1024"]
