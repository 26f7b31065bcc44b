"""`jit`: functions that CuTe-DSL compiles in this process, with their host launchers, on CPU memory."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from msa_ops.emulator import EmulatorFault, JitSession, jit
from tests.emulator.programs import line_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]
THREADS = 64


@pytest.fixture
def session() -> Iterator[JitSession]:
    pytest.importorskip("cutlass")
    with jit("sm_90a") as session:
        yield session


def compiled(value: float, *tensors: torch.Tensor) -> Any:
    """out = a + value, compiled for this value."""
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    from tests.emulator.jit_kernels import add

    views = [from_dlpack(tensor) for tensor in tensors]
    function = cute.compile(add, *views, value)
    return lambda: function(*views)


def test_right_result_and_counts(session: JitSession) -> None:
    a, out = torch.arange(THREADS, dtype=torch.float32), torch.full((THREADS,), torch.nan)
    session.use(a=a, out=out)
    (launch,) = session.run(compiled(0.5, a, out))
    assert torch.equal(out, a + 0.5)
    assert launch in session.launches and "add_kernel" in launch.kernel
    assert launch.report.tensors["a"].read == launch.report.tensors["out"].written == 4 * THREADS
    assert "st.global" in session.texts[0]  # as for a tensor on a GPU, not a generic access


def test_functions_of_one_name_have_their_own_text(session: JitSession) -> None:
    a, out = torch.zeros(THREADS), torch.empty(THREADS)
    session.use(a, out)
    functions = [(value, compiled(value, a, out)) for value in (1.0, 2.0)]
    for value, function in functions + functions[:1]:
        session.run(function)
        assert torch.equal(out, torch.full_like(out, value))


def test_memory_that_is_not_the_session_s(session: JitSession) -> None:
    a, out = torch.zeros(THREADS), torch.empty(THREADS)
    session.use(a, out[:-1])
    function = compiled(1.0, a, out)
    with pytest.raises(EmulatorFault) as caught:
        session.run(function)
    assert (caught.value.kind, caught.value.address) == ("out of bounds", out.data_ptr() + 4 * (THREADS - 1))
    session.forget()
    session.use(a, out)
    for again in (lambda: session.run(function), lambda: session.run_together([function])):
        with pytest.raises(RuntimeError, match=r"an earlier launch .* failed.*open a new session") as later:
            again()  # as a device after a fault
        assert type(later.value) is RuntimeError
        assert str(later.value.__cause__) == str(caught.value)


def test_a_fault_names_the_line_of_python(session: JitSession) -> None:
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    from tests.emulator import jit_kernels

    a, out = torch.zeros(THREADS), torch.empty(THREADS)
    session.use(a, out[:-1])
    views = [from_dlpack(a), from_dlpack(out)]
    function = cute.compile(jit_kernels.add, *views, 4.0, options="--generate-line-info")
    with pytest.raises(EmulatorFault, match="out of bounds") as caught:
        session.run(function, *views)
    lines = Path(jit_kernels.__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "out[thread] =" in text)
    assert caught.value.source == f"{jit_kernels.__file__}:{line}"


def test_a_deadlock_names_the_line_of_the_wait(session: JitSession) -> None:
    """The wait is inline assembly, whose lines the compiler counts as if they stood in the source."""
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    from tests.emulator import jit_kernels

    out = torch.empty(THREADS)
    session.use(out)
    view = from_dlpack(out)
    function = cute.compile(jit_kernels.wait, view, options="--generate-line-info")
    line = line_of(Path(jit_kernels.__file__).read_text(), "# for one more than there are")
    with pytest.raises(EmulatorFault, match="deadlock") as caught:
        session.run(function, view)
    fault = caught.value
    assert fault.source == f"{jit_kernels.__file__}:{line}"
    assert str(fault).count(f"(jit_kernels.py:{line})") == 3  # of both warps, and of the fault
    assert fault.ptx == session.texts[-1]
    assert fault.instruction in " ".join(fault.ptx.splitlines()[fault.line - 1].split())


def test_without_line_information_it_is_said_how_to_get_it(session: JitSession) -> None:
    a, out = torch.zeros(THREADS), torch.empty(THREADS)
    session.use(a)
    with pytest.raises(EmulatorFault) as caught:
        session.run(compiled(1.0, a, out))
    assert caught.value.source is None
    assert any("--generate-line-info" in note for note in caught.value.__notes__)


def test_devices_at_the_same_time(session: JitSession) -> None:
    a = [torch.zeros(THREADS), torch.ones(THREADS)]
    out = [torch.empty(THREADS) for _ in a]
    session.use(*a, *out)
    launches = session.run_together([compiled(3.0, one, other) for one, other in zip(a, out, strict=True)])
    assert [launch.report.launches for launch in launches] == [1, 1]
    assert torch.equal(out[0], a[0] + 3) and torch.equal(out[1], a[1] + 3)


def test_calls_of_several_launches_at_the_same_time(session: JitSession) -> None:
    """The second launch of a call finds what the first one wrote."""
    a, between, out = ([torch.full((THREADS,), float(i)) for i in range(2)] for _ in range(3))
    session.use(*a, *between, *out)
    first = [compiled(3.0, one, other) for one, other in zip(a, between, strict=True)]
    second = [compiled(4.0, one, other) for one, other in zip(between, out, strict=True)]

    def call(i: int) -> None:
        first[i]()
        second[i]()

    assert len(session.run_together([lambda: call(0), lambda: call(1)])) == 4
    assert torch.equal(out[0], a[0] + 7) and torch.equal(out[1], a[1] + 7)


def test_another_thread(session: JitSession) -> None:
    a, out = torch.zeros(THREADS), torch.empty(THREADS)
    session.use(a, out)

    def work() -> None:
        with session.in_this_thread():
            compiled(4.0, a, out)()

    def in_a_thread() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    (launch,) = session.run(in_a_thread)
    assert launch.report.launches == 1 and torch.equal(out, a + 4)
    session.run(compiled(5.0, a, out))  # the first thread is still in it
    assert torch.equal(out, a + 5)


def test_a_chip_by_its_name() -> None:
    pytest.importorskip("cutlass")
    with jit("B200") as session:
        assert session.chip == "sm_100a"


def test_chip_without_an_emulator() -> None:
    pytest.importorskip("cutlass")
    with pytest.raises(ValueError, match=r"'sm_80'; accepted: sm_90a, .* such as H100 or B200"), jit("sm_80"):
        pass
