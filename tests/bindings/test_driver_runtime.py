"""Launches through the CUDA driver, of which a stand-in is compiled here: it writes down what it is asked for."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from tests.bindings import stand_in_cuda

from msa_ops import _C

KERNEL = "quantize_nvfp4__bfloat16_plain_divide__sm_90a"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        KERNEL not in dict(_C.compiled_kernels()), reason="this build of msa_ops holds no NVIDIA kernels"
    ),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build a stand-in for libcuda"),
]

LAUNCH = f"""
import os, threading
from msa_ops import _C
position = _C.find_kernel("{KERNEL}")
def launch(device=0, stream=0, rows=64):
    _C.launch_kernel(position, device, stream, [0x1000, 0x2000, 0x3000, 0, 0x3F800000, rows])
def say(*what):
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())
"""


def run(folder: Path, body: str, **how: str) -> list[str]:
    """Lines of a process's output."""
    return lines_of(stand_in_cuda.run(folder, LAUNCH + textwrap.dedent(body), **how))


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_code_is_loaded_at_the_first_launch_and_once(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
        say("before")
        for device, stream in ((0, 5), (0, 6), (1, 5)):
            launch(device, stream)
        """,
    )
    launches = [line for line in found if line.startswith("launch")]
    assert [line.split(" stream ")[1] for line in launches] == ["5 context 100", "6 context 100", "5 context 101"]
    assert found[:2] == ["before", "opened"]
    assert [found.count(line) for line in ("load", "kernel", "retain 0", "retain 1")] == [1, 1, 1, 1]
    assert [line for line in found if "push" in line or "pop" in line] == [
        line for context in (100, 100, 101) for line in (f"push {context}", f"pop {context}")
    ], "the context of the thread is as it was after each launch"


def test_many_threads_at_their_first_launch(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
        start = threading.Barrier(8)
        def work(i):
            start.wait()
            launch(i % 2, stream=i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    assert [found.count(line) for line in ("opened", "load", "kernel")] == [1, 1, 1]
    launches = sorted(line.split(" stream ")[1] for line in found if line.startswith("launch"))
    assert launches == [f"{i} context {100 + i % 2}" for i in range(8)]


@pytest.mark.parametrize(
    ("fail", "step"),
    [
        ("cuLibraryLoadData", "its launch|loading onto the device"),
        ("cuLibraryGetKernel", "its launch|loading onto the device"),
        ("cuLaunchKernelEx", "its launch"),
        ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"),
        ("cuInit", "cuInit"),
    ],
)
def test_an_error_names_kernel_and_cause_and_leaves_the_process_usable(tmp_path: Path, fail: str, step: str) -> None:
    found = run(
        tmp_path,
        """
        for attempt in range(2):
            try:
                launch(stream=7)
            except RuntimeError as error:
                say("caught", error)
        os.environ["FAIL"] = ""
        launch(stream=8)
        """,
        FAIL=fail,
    )
    caught = [line for line in found if line.startswith("caught")]
    assert len(caught) == 2 and len(set(caught)) == 1
    assert "failed: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure" in caught[0]
    assert any(text in caught[0] for text in step.split("|")), caught[0]
    if fail.startswith(("cuLibrary", "cuLaunch")):
        assert f"kernel {KERNEL}: " in caught[0]
    assert [line.split(" stream ")[1] for line in found if line.startswith("launch")][-1] == "8 context 100"


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
        for device in (2, 64, -1):
            try:
                launch(device)
            except (RuntimeError, ValueError) as error:
                say("caught", type(error).__name__, error)
        launch()
        """,
    )
    assert [line.split()[1] for line in found if line.startswith("caught")] == [
        "RuntimeError",
        "ValueError",
        "ValueError",
    ]
    assert found[-2].startswith("launch")


def test_a_driver_without_a_function_is_named(tmp_path: Path) -> None:
    done = stand_in_cuda.run(tmp_path, LAUNCH + "launch()", without="cuLaunchKernelEx")
    assert done.returncode == 1
    assert "the CUDA driver lacks cuLaunchKernelEx; a driver of CUDA 12.3 or newer has it" in done.stderr


def test_memory_is_cleared_in_the_order_of_the_stream(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
        import ctypes
        memory = ctypes.create_string_buffer(b"x" * 8, 8)
        _C.clear_memory(0, 9, ctypes.addressof(memory), 3)
        assert memory.raw == b"\\0\\0\\0xxxxx"
        os.environ["FAIL"] = "cuMemsetD8Async"
        try:
            _C.clear_memory(0, 9, ctypes.addressof(memory), 3)
        except RuntimeError as error:
            say("caught", error)
        """,
    )
    assert found[-3] == "clear 3 with 0 stream 9"
    assert "clearing 3 bytes of a workspace failed: CUDA_ERROR_LAUNCH_FAILED" in found[-1]


REPLAY = (
    stand_in_cuda.DEVICE_OF_TORCH
    + LAUNCH
    + """
import contextvars
from types import SimpleNamespace
from msa_ops.launch_arguments import note, pointer, record
calls = _C.CallReplays(READER, ["x", "codes", "scales"], ["codes", "scales"], 128)
context, registry = contextvars.ContextVar("wishes", default=()), SimpleNamespace(generation=0)
state = _C.TorchState([], lambda: False)
call = _C.op_entry(calls, lambda *_: "long way", context, registry, state)
def tensors(rows=4):
    pool = torch.zeros(3 * 128 * rows + 128, dtype=torch.uint8)
    at = -pool.data_ptr() % 128
    return pool[at : at + 384 * rows].view(3, rows, 128).unbind()
def warm_up(*own):  # no graph is made before
    for _ in range(3): call(*own)
    say("warm")
def remember(launch_of, workspace=0, made=(), make=None):
    x, codes, scales = own = tensors()
    scratch = torch.empty(workspace, dtype=torch.uint8) if workspace else None
    with record() as launches:
        launch_of(x, codes, scales, scratch, *made)
    outs = None
    return calls.remember(own, {}, outs, None, False, 0, made, scratch, 0, list(launches), make)
def quantize(x, codes, scales, *_):
    note(position, (pointer(x), pointer(codes) + 16, pointer(scales), 0, 0x3F800000, 64))
def lines(*what):
    say("expect", *(f"{value:x}" for value in what))
"""
)


def replay(folder: Path, body: str, **environment: str) -> list[str]:
    found = lines_of(stand_in_cuda.run(folder, REPLAY + textwrap.dedent(body), **environment))
    while "warm" in found:
        found = found[found.index("warm") + 1 :]
    return found


def test_a_replayed_call_has_the_addresses_of_its_own_tensors(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        """
        assert remember(quantize)
        stand_in.show_parameters(3)
        for stream in (16, 17):
            stand_in.set_stream(stream)
            x, codes, scales = tensors()
            call(x, codes, scales)
            lines(x.data_ptr(), codes.data_ptr() + 16, scales.data_ptr())
        """,
    )
    launches = [line.split(" context 100 ") for line in found if line.startswith("launch")]
    assert [launch[0].split(" stream ")[1] for launch in launches] == ["16", "17"]
    expected = [line.removeprefix("expect ") for line in found if line.startswith("expect")]
    assert [launch[1] for launch in launches] == expected and len(set(expected)) == 2


def test_a_workspace_lives_as_long_as_the_launches(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        """
        def both(x, codes, scales, scratch):
            note(_C.CLEAR, (pointer(scratch), 256))
            note(position, (pointer(x), pointer(scratch) + 512, pointer(scales), 0, 0x3F800000, 64))
        assert remember(both, workspace=1024)
        own = tensors()
        for fail in ("", "cuMemsetD8Async", "cuLaunchKernelEx", "allocate", ""):
            os.environ["FAIL"] = fail
            try:
                say("then", call(*own))
            except RuntimeError as error:
                say("caught", error)
        """,
        CAPTURING="1",  # one by one
    )
    steps = [line.split()[0] for line in found if line.split()[0] in {"allocate", "clear", "launch", "free", "then"}]
    whole = ["allocate", "clear", "launch", "free", "then"]
    assert steps == [*whole, *whole[:2], "free", *whole[:4], "then", *whole]
    assert [line.split()[1] for line in found if line.startswith("allocate")] == ["1024"] * 4
    assert found.count("then long way") == 1, "no memory: the long way says so"
    assert [line for line in found if line.startswith("caught")] == [
        "caught clearing 256 bytes of a workspace failed: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
        f"caught kernel {KERNEL}: its launch failed: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
    ]


def test_a_workspace_that_no_launch_uses_is_not_made(tmp_path: Path) -> None:
    found = replay(tmp_path, "assert remember(quantize, workspace=1024)\nsay('then', call(*tensors()))")
    assert found[-1] == "then None" and any(line.startswith("launch") for line in found)
    assert not any(line.startswith("allocate") for line in found)


def test_the_interpreter_is_free_while_the_driver_launches(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        """
        assert remember(quantize)
        held = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p)
        stand_in.ask_at_launches(held)
        call(*tensors())
        launch()
        """,
    )
    assert [line.split(" held ")[1] for line in found if line.startswith("launch")] == ["0", "0"]


@pytest.mark.parametrize("how", ["make", "_C.ResultMaker.of(made)"])
def test_results_are_made_and_given_back(tmp_path: Path, how: str) -> None:
    found = replay(
        tmp_path,
        f"""
        def make(): return tuple(torch.empty(4, 128, dtype=torch.uint8) for _ in range(2))
        made = make()
        def into(x, codes, scales, scratch, first, second):
            note(position, (pointer(first), pointer(second), pointer(scales), 0, 0x3F800000, 64))
        assert remember(into, made=made, make={how})
        stand_in.show_parameters(2)
        first, second = call(*tensors())
        lines(first.data_ptr(), second.data_ptr())
        assert first.data_ptr() != made[0].data_ptr()
        """,
    )
    (launched,) = [line.split(" context 100 ")[1] for line in found if line.startswith("launch")]
    assert f"expect {launched}" in found


def test_results_of_a_failed_launch_are_dropped(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        """
        made = tuple(torch.empty(1 << 22, dtype=torch.uint8) for _ in range(2))
        def into(x, codes, scales, scratch, first, second):
            note(position, (pointer(first), pointer(second), pointer(scales), 0, 0x3F800000, 64))
        assert remember(into, made=made, make=_C.ResultMaker.of(made))
        own = tensors()
        def pages(): return int(open("/proc/self/statm").read().split()[0])
        for _ in range(4): call(*own)
        before, failed = pages(), 0
        for fail in ("cuGraphLaunch", "cuLaunchKernelEx"):  # the graph, which is not made again then, and kernels
            os.environ["FAIL"] = fail
            for _ in range(100):
                try: call(*own)
                except RuntimeError: failed += 1
        say("failed", failed, "more", (pages() - before) * os.sysconf("SC_PAGE_SIZE") < 64 << 20)
        """,
    )
    assert "failed 200 more True" in found, "1.6 GB were made"


def test_threads_replay_on_their_own_tensors(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        """
        assert remember(quantize)
        stand_in.show_parameters(3)
        def work():
            for _ in range(50):
                x, codes, scales = tensors()
                call(x, codes, scales)
                lines(x.data_ptr(), codes.data_ptr() + 16, scales.data_ptr())
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    launches = sorted(line.split(" context 100 ")[1] for line in found if line.startswith("launch"))
    assert launches == sorted(line.removeprefix("expect ") for line in found if line.startswith("expect"))
    assert len(launches) == 200


MANY = """
def many(x, codes, scales, scratch):
    note(_C.CLEAR, (pointer(scratch), 256))
    for place in range(3):
        note(position, (pointer(x), pointer(codes) + 16 * place, pointer(scratch) + 512, 0, 0x3F800000, 64))
assert remember(many, workspace=1024)
stand_in.show_parameters(3)
def checked_call(*own):
    x, codes, scales = own
    assert call(*own) is None
    lines(x.data_ptr(), codes.data_ptr(), codes.data_ptr() + 16, codes.data_ptr() + 32)
"""


def launched(found: list[str]) -> list[list[str]]:
    """For each call x and the three places in codes, as kernels were given them."""
    values = [line.split(" context 100 ")[1].split() for line in found if line.startswith("launch")]
    return [[three[0][0], *(one[1] for one in three)] for three in zip(*[iter(values)] * 3, strict=True)]


def expected(found: list[str]) -> list[list[str]]:
    return [line.split()[1:] for line in found if line.startswith("expect")]


def test_many_launches_are_one_graph_whose_nodes_are_set(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        MANY
        + """
own, other = tensors(), tensors()
stand_in.set_stream(17)
warm_up(*own)
stand_in.set_stream(16)
warm_up(*own)
for each in (own, own, other, own):
    checked_call(*each)
stand_in.set_stream(17)
checked_call(*own)
""",
    )
    assert launched(found) == expected(found)
    assert [line.split()[-1] for line in found if line.startswith("clear")] == ["16"] * 4 + ["17"]
    assert found.count("graph of 4") == 5
    assert found.count("instantiate 4") == found.count("capture") == 2, "one for each stream"
    assert 6 <= found.count("set kernel") <= 12, "arguments that stay are not set again, but for a workspace elsewhere"
    assert "destroy executable" not in found
    assert [line for line in found if line.startswith("mode")] == ["mode 2", "mode 0"] * 2


def test_graphs_are_destroyed_with_the_calls(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        MANY
        + """
warm_up(*tensors())
checked_call(*tensors())
registry.generation = 1
say("then", call(*tensors()))
""",
    )
    assert [line for line in found if line.split()[0] in {"destroy", "then"}] == [
        "destroy executable",
        "destroy graph",
        "then long way",
    ]


@pytest.mark.parametrize(
    "fail",
    [
        "cuStreamCreate",
        "cuStreamBeginCapture_v2",
        "cuStreamGetCaptureInfo_v3",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
    ],
)
def test_what_cannot_be_a_graph_is_launched_one_by_one(tmp_path: Path, fail: str) -> None:
    found = replay(
        tmp_path,
        MANY
        + f"""
own = tensors()
warm_up(*own)
os.environ["FAIL"] = "{fail}"
checked_call(*own)
os.environ["FAIL"] = ""
checked_call(*own)
""",
    )
    assert launched(found) == expected(found)
    assert "graph of 4" not in found and found.count("capture") <= 1, "not tried again"
    assert [line.split()[-1] for line in found if line.startswith("clear")] == ["16"] * 2


def test_a_captured_stream_gets_the_kernels_themselves(tmp_path: Path) -> None:
    found = replay(tmp_path, MANY + "warm_up(*tensors())\nchecked_call(*tensors())", CAPTURING="1")
    assert launched(found) == expected(found)
    assert "graph of 4" not in found and "capture" not in found


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        ("cuGraphLaunch", f"{KERNEL}: the launch of their graph failed: CUDA_ERROR_LAUNCH_FAILED"),
        ("cuGraphExecKernelNodeSetParams_v2", f"kernel {KERNEL}: its launch failed: CUDA_ERROR_LAUNCH_FAILED"),
    ],
)
def test_a_refused_graph_is_an_error_and_made_anew(tmp_path: Path, fail: str, said: str) -> None:
    found = replay(
        tmp_path,
        MANY
        + f"""
own = tensors()
warm_up(*own)
checked_call(*own)
os.environ["FAIL"] = "{fail}"
try:
    call(*tensors())
except RuntimeError as error:
    say("caught", error)
os.environ["FAIL"] = ""
checked_call(*own)
""",
    )
    assert launched(found) == expected(found)
    assert any(said in line for line in found if line.startswith("caught"))
    assert found.count("instantiate 4") == 2 and found.count("destroy executable") == 1


def test_threads_share_a_graph_in_turn(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        MANY
        + """
warm_up(*tensors())
def work():
    for _ in range(30):
        checked_call(*tensors())
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    )
    assert sorted(launched(found)) == sorted(expected(found))
    assert found.count("instantiate 4") <= 8 and found.count("graph of 4") == 120


@pytest.mark.parametrize(("sets", "graphs"), [(1, 1), (2, 2), (5, 5), (8, 8), (10, 1), (40, 1)])
def test_calls_at_a_few_addresses_in_turn_have_a_graph_for_each(tmp_path: Path, sets: int, graphs: int) -> None:
    """As results that are kept until the next are made; many layers of a model have one graph, whose nodes are set."""
    found = replay(
        tmp_path,
        MANY
        + f"""
sets = [tensors() for _ in range({sets})]
warm_up(*sets[0])
for _ in range(40):
    for own in sets: checked_call(*own)
say("then")
for own in sets: checked_call(*own)
""",
    )
    assert launched(found) == expected(found)
    assert found.count("instantiate 4") == graphs and found.count("graph of 4") == 41 * sets
    set_last = found[found.index("then") :].count("set kernel")
    assert set_last == (0 if graphs == sets else 3 * sets)


def test_where_no_more_graphs_can_be_made_those_that_are_there_serve(tmp_path: Path) -> None:
    found = replay(
        tmp_path,
        MANY
        + """
sets = [tensors() for _ in range(2)]
warm_up(*sets[0])
checked_call(*sets[0])
os.environ["FAIL"] = "cuGraphInstantiateWithFlags"
for _ in range(10):
    for own in sets: checked_call(*own)
""",
    )
    assert launched(found) == expected(found)
    assert found.count("instantiate 4") == 2 and found.count("graph of 4") == 20, "one call was launched one by one"


def test_graphs_that_were_not_used_for_long_are_given_up(tmp_path: Path) -> None:
    """Their number is bounded, whatever the number of calls that a process makes often."""
    found = replay(
        tmp_path,
        MANY
        + """
for rows in range(4, 134):
    own = tensors(rows)
    scratch = torch.empty(1024, dtype=torch.uint8)
    with record() as launches:
        many(*own, scratch)
    assert calls.remember(own, {}, None, None, False, 0, (), scratch, 0, list(launches), None)
    for _ in range(4): call(*own)
say("warm")
checked_call(*own)
checked_call(*tensors(5))
""",
    )
    assert launched(found) == expected(found)
    assert "instantiate 4" not in found and found.count("graph of 4") == 1, "the last is there, the second not"
