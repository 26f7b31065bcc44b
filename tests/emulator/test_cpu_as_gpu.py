"""Host code that looks for a GPU finds the emulated chip, and nothing of it stays when the block ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.emulator import EmulatorFault, JitSession, cpu_as_gpu, jit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]
THREADS = 64


@pytest.fixture
def session() -> Iterator[JitSession]:
    pytest.importorskip("cutlass")
    with jit("sm_100a") as session:
        yield session


def test_what_host_code_sees(session: JitSession) -> None:
    import cutlass.utils
    from cuda.bindings import driver

    before = torch.cuda.is_available()
    with cpu_as_gpu(session):
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        assert (properties.major, properties.minor, properties.multi_processor_count) == (10, 0, 148)
        assert torch.cuda.get_device_capability() == (10, 0) and torch.cuda.is_available()
        assert cutlass.utils.HardwareInfo().get_max_active_clusters(4) == 37
        major = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        assert driver.cuDeviceGetAttribute(major, 0)[1] == 10
        tensor = torch.ones(3, 5, device="cuda")
        assert tensor.is_cuda and tensor.device == torch.device("cuda:0") and tensor.data_ptr() % 256 == 0
        made = [
            tensor.clone(),
            tensor + 1,
            torch.empty_like(tensor),
            torch.cat([tensor, tensor]),
            tensor.to(torch.int8),
        ]
        assert all(one.data_ptr() % 256 == 0 for one in made)
        assert tensor[1:].data_ptr() == tensor.data_ptr() + 20 and tensor.mT.data_ptr() == tensor.data_ptr()
        array = np.zeros(5, np.float32)
        assert torch.from_numpy(array).data_ptr() == array.ctypes.data
        with torch.cuda.stream(torch.cuda.Stream()):
            assert tensor.cpu().tolist() == tensor.tolist()
    with cpu_as_gpu(session, multiprocessors=6):
        assert torch.cuda.get_device_properties(0).multi_processor_count == 6
        assert cutlass.utils.HardwareInfo().get_max_active_clusters(4) == 1
    assert torch.cuda.is_available() == before and not torch.ones(1).is_cuda
    assert torch.ones(1).device.type == "cpu"


def test_every_tensor_is_memory(session: JitSession) -> None:
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    from tests.emulator.jit_kernels import add

    foreign = torch.zeros(THREADS)
    with cpu_as_gpu(session):
        a = torch.arange(THREADS, dtype=torch.float32, device="cuda")
        out = torch.empty(THREADS, device="cuda")
        views = from_dlpack(a), from_dlpack(out)
        function = cute.compile(add, *views, 2.0)
        session.run(function, *views)
        assert torch.equal(out, a + 2)
        with pytest.raises(EmulatorFault, match="out of bounds"):
            session.run(function, from_dlpack(foreign), views[1])


@pytest.mark.parametrize("how", ["backward", "grad"])
def test_gradients_are_computed_on_it_too(session: JitSession, how: str) -> None:
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            made = torch.empty(7, device="cuda")
            seen.append((made.device.type, made.data_ptr() % 256))
            return gradient * 2

    with cpu_as_gpu(session):
        x = torch.ones(3, device="cuda", requires_grad=True)
        if how == "backward":
            Double.apply(x).sum().backward()
            assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
        else:
            assert torch.autograd.grad(Double.apply(x).sum(), x)[0].tolist() == [2, 2, 2]
    assert seen == [("cuda", 0)]


def doubled(session: JitSession, a: torch.Tensor, out: torch.Tensor) -> Any:
    """A function that reads THREADS elements from one address and writes as many at another."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_ptr

    from tests.emulator.jit_kernels import add_at

    def pointer(address: int) -> Any:
        return make_ptr(cutlass.Float32, address, cute.AddressSpace.gmem, assumed_align=16)

    function = cute.compile(add_at, pointer(a.data_ptr()), pointer(out.data_ptr()), THREADS, 2.0)
    return lambda first, second: session.run(function, pointer(first), pointer(second))


@pytest.mark.parametrize("missing", [1, 4, 16])
@pytest.mark.parametrize("where", ["read", "written"])
def test_an_element_past_the_end_is_out_of_bounds(session: JitSession, where: str, missing: int) -> None:
    others = []
    with cpu_as_gpu(session):
        others.append(torch.empty(16 * missing))  # so that tensors lie differently
        sizes = (THREADS - missing, THREADS) if where == "read" else (THREADS, THREADS - missing)
        a, out = (torch.zeros(size, device="cuda") for size in sizes)
        with pytest.raises(EmulatorFault, match="out of bounds"):
            doubled(session, a, out)(a.data_ptr(), out.data_ptr())


def test_a_resized_tensor_has_all_its_bytes(session: JitSession) -> None:
    with cpu_as_gpu(session):
        a = torch.zeros(THREADS - 4, device="cuda").resize_(THREADS).fill_(1)
        out = torch.zeros(3, device="cuda").resize_(THREADS)
        doubled(session, a, out)(a.data_ptr(), out.data_ptr())
        assert torch.equal(out, a + 2)


def test_a_dead_tensor_is_no_memory(session: JitSession) -> None:
    with cpu_as_gpu(session):
        a, out = torch.ones(THREADS, device="cuda"), torch.empty(THREADS, device="cuda")
        run, address, view = doubled(session, a, out), a.data_ptr(), a[1:]
        del a
        run(address, out.data_ptr())  # the view keeps it
        assert out.tolist() == [3] * THREADS
        before = len(session._lent)
        for _ in range(20):
            torch.ones(1 << 10, device="cuda")
        assert len(session._lent) == before
        del view
        with pytest.raises(EmulatorFault, match="out of bounds"):
            run(address, out.data_ptr())


def test_what_is_launched_later_keeps_its_memory(session: JitSession) -> None:
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    from tests.emulator.jit_kernels import add

    with cpu_as_gpu(session):
        out = torch.empty(THREADS, device="cuda")
        views = from_dlpack(torch.zeros(THREADS, device="cuda")), from_dlpack(out)
        function = cute.compile(add, *views, 2.0)

        def with_a_tensor_of_its_own() -> None:
            a = torch.ones(THREADS, device="cuda")
            function(from_dlpack(a), views[1])

        session.run_together([with_a_tensor_of_its_own])
        assert out.tolist() == [3] * THREADS


def test_what_is_refused(session: JitSession) -> None:
    with pytest.raises(TypeError, match="session: int"), cpu_as_gpu(3):  # type: ignore[arg-type]
        pass
    with cpu_as_gpu(session):
        for make in (
            lambda: torch.zeros(3, device="cuda:1"),
            lambda: torch.ones(3).to("cuda:1"),
            lambda: torch.ones(3).cuda(1),
            lambda: torch.ones(3).to(1),
        ):
            with pytest.raises(RuntimeError, match="devices that there are: 1"):
                make()
        assert torch.ones(3).cuda(0).is_cuda and torch.zeros(3, device=0).is_cuda


def test_a_session_that_has_ended_is_refused() -> None:
    pytest.importorskip("cutlass")
    with jit("sm_100a") as ended:
        pass
    with pytest.raises(RuntimeError, match="its block has ended"), cpu_as_gpu(ended):
        pass
