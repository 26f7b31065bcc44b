"""Objects with host launchers: one of C that calls the runtime as CuTe-DSL's do, and the kernels of a build."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from msa_ops.cute.quantize_nvfp4 import sm90_configs  # type: ignore[import-untyped]

from msa_ops.emulator import CompiledObject, EmulatorFault, load_object
from msa_ops.ops import quantize_nvfp4

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("cc"), reason="needs x86-64 and a C compiler"
)

PTX = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 p_data, .param .f32 p_value, .param .u64 p_flag)
{
  .reg .b32 %r<4>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<4>;
  .reg .pred %p;
  ld.param.u64 %rd0, [p_data];
  ld.param.f32 %f0, [p_value];
  ld.param.u64 %rd2, [p_flag];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd1, %r0, 4;
  add.s64 %rd1, %rd0, %rd1;
  setp.eq.u64 %p, %rd2, 0;
  @%p bra Add;
  mov.u32 %r3, 1;
  st.release.sys.global.b32 [%rd2], %r3;
Wait:
  ld.acquire.sys.global.b32 %r1, [%rd2+4];
  setp.eq.u32 %p, %r1, 0;
  @%p bra Wait;
Add:
  ld.global.f32 %f1, [%rd1];
  add.f32 %f1, %f1, %f0;
  st.global.f32 [%rd1], %f1;
  ret;
}
"""

LAUNCHER = """
#include <stdint.h>
#include <stddef.h>
typedef struct { unsigned grid[3], block[3]; size_t shared; void* stream; void* attributes; unsigned count; } config;
int _cudaLibraryLoadData(void**, const void*, void*, void**, unsigned, void*, void**, unsigned);
int _cudaLibraryGetKernel(void**, void*, const char*);
int _cudaLaunchKernelEx(const config*, void*, void**);
int _cudaGetDevice(int*);
int EXTRA(void);
static const char code[] = "code";
static void* library;
static void* kernel;
void _mlir_adder_cuda_init(void** arguments) {
  void** where = *(void***)arguments[0];
  *(int*)arguments[1] = _cudaLibraryLoadData(where, code, 0, 0, 0, 0, 0, 0);
  library = *where;
}
void _mlir_adder_cuda_load_to_device(void** arguments) {
  *(int*)arguments[2] = _cudaLibraryGetKernel(&kernel, library, "add");
}
void _mlir_adder__mlir_ciface_add(void** arguments, int32_t count) {
  config launch = {{1, 1, 1}, {*(int32_t*)arguments[3], 1, 1}, 0, STREAM, 0, 0};
  void* parameters[3] = {arguments[0], arguments[1], arguments[2]};
  int device = 0;
  _cudaGetDevice(&device);
  *(int*)arguments[RESULT] = EXTRA() + _cudaLaunchKernelEx(&launch, kernel, parameters);
}
"""


def compiled(folder: Path, extra: str = "", stream: bool = True) -> Path:
    """The object. stream: whether the launcher takes one behind its other arguments, before its result."""
    source, target = folder / "adder.c", folder / "adder.o"
    text = LAUNCHER.replace("int EXTRA(void);", f"int {extra}(void);" if extra else "").replace(
        "EXTRA()", f"{extra}()" if extra else "0"
    )
    text = text.replace("STREAM", "*(void**)arguments[4]" if stream else "0").replace("RESULT", "5" if stream else "4")
    source.write_text(text)
    subprocess.run(["cc", "-fPIC", "-c", "-o", target, source], check=True)
    return target


@pytest.fixture(scope="module")
def adder(tmp_path_factory: pytest.TempPathFactory) -> CompiledObject:
    return load_object(compiled(tmp_path_factory.mktemp("object")), PTX)


def test_the_launcher_launches(adder: CompiledObject) -> None:
    data = np.arange(64, dtype=np.float32)
    report = adder.run(data, 0.5, None, 64, chip="sm_90a", seed=1)
    assert np.array_equal(data, np.arange(64) + np.float32(0.5))
    assert (adder.name, report.launches, report.warp_instructions["add.f32"]) == ("adder", 1, 2)


def test_two_objects_do_not_mix(adder: CompiledObject, tmp_path: Path) -> None:
    other = load_object(compiled(tmp_path), PTX.replace("add.f32 %f1, %f1, %f0", "sub.f32 %f1, %f1, %f0"))
    for one, sign in ((adder, 1), (other, -1), (adder, 1)):
        data = torch.arange(32, dtype=torch.float32)
        one.run(data, 2.0, None, 32, chip="sm_90a")
        assert torch.equal(data, torch.arange(32) + 2.0 * sign)


def test_devices_wait_for_each_other(adder: CompiledObject) -> None:
    data = [torch.zeros(32) for _ in range(2)]
    flags = torch.zeros(3, dtype=torch.int32)
    # Each sets its own flag and waits for the word behind it: device 1 waits for a third that device 0 must not need.
    arguments = [[data[0], 1.0, flags[0:2], 32], [data[1], 2.0, flags[1:3], 32]]
    flags[2] = 1
    reports = adder.run_on_devices(arguments, chip="sm_90a", tensors={"flags": flags})
    assert [one.launches for one in reports] == [1, 1]
    assert data[0].tolist() == [1.0] * 32 and data[1].tolist() == [2.0] * 32
    flags.zero_()
    with pytest.raises(EmulatorFault) as caught:
        adder.run_on_devices(arguments, chip="sm_90a", tensors={"flags": flags}, max_instructions=100_000)
    assert caught.value.kind in ("limit", "deadlock")


def test_a_fault_names_the_place(adder: CompiledObject) -> None:
    with pytest.raises(EmulatorFault) as caught:
        adder.run(torch.zeros(31), 1.0, None, 32, chip="sm_90a")
    assert (caught.value.kind, caught.value.kernel, caught.value.lane) == ("out of bounds", "add", 31)


def test_shapes_of_devices_differ(adder: CompiledObject) -> None:
    data = [torch.zeros(64) for _ in range(2)]
    adder.run_on_devices([[one, 1.0, None, n] for one, n in zip(data, (32, 64), strict=True)], chip="sm_90a")
    assert [int(one.sum()) for one in data] == [32, 64]
    with pytest.raises(ValueError, match="at least one device"):
        adder.run_on_devices([], chip="sm_90a")


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="calls _cudaMystery, which are not offered"):
        load_object(compiled(tmp_path, "_cudaMystery"), PTX)
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;\n")
    subprocess.run(["cc", "-fPIC", "-c", "-o", tmp_path / "empty.o", empty], check=True)
    with pytest.raises(ValueError, match="0 host launchers"):
        load_object(tmp_path / "empty.o", PTX)
    with pytest.raises(ValueError, match="not an object file"):
        load_object(empty, PTX)
    for text in ("", " \n"):
        with pytest.raises(ValueError, match="an empty text"):
            load_object(empty, text)
    with pytest.raises(ValueError, match="half a character"):
        load_object(empty, PTX + "\ud800")
    with pytest.raises(ValueError, match="no text"):
        load_object(tmp_path / "empty.o", [])
    with pytest.raises(FileNotFoundError):
        load_object(tmp_path / "none.o", PTX)


def test_wrong_arguments(adder: CompiledObject) -> None:
    with pytest.raises(TypeError, match="argument 1: str"):
        adder.run(torch.zeros(32), "1", None, 32, chip="sm_90a")
    with pytest.raises(ValueError, match="which none of the 1 texts holds"):
        CompiledObject("adder", adder._functions, [PTX.replace(".entry add", ".entry other")]).run(
            torch.zeros(32), 1.0, None, 32, chip="sm_90a"
        )


@pytest.mark.slow
def test_an_object_of_this_repository() -> None:
    folder = os.environ.get("MSA_OPS_KERNELS", "")
    if not folder:
        pytest.skip("MSA_OPS_KERNELS names no folder of compiled kernels; `make kernels` fills build/kernels")
    config = next(one for one in sm90_configs.FAMILY.configs if one.dtype == "bfloat16" and not one.global_scale)
    base = Path(folder) / "sm_90a" / f"quantize_nvfp4__{config.name}__sm_90a"
    args = quantize_nvfp4.generate(7)
    args.x, args.division = args.x.bfloat16().contiguous(), config.division
    expected = quantize_nvfp4.reference(args)
    codes, scales = (torch.empty_like(one) for one in expected)
    loaded = load_object(f"{base}.o", Path(f"{base}.ptx").read_text())
    loaded.run(args.x, codes, scales, None, float(args.scale_floor), scales.numel(), chip="sm_90a")
    assert torch.equal(codes, expected[0]) and torch.equal(scales, expected[1])


HEADER = """
typedef struct { void *data; } adder_Tensor_data_t;
static inline int32_t cute_dsl_adder_wrapper(adder_Kernel_Module_t *module, adder_Tensor_data_t *data, float v,
                                             void *flag, int32_t threads, cudaStream_t stream) {
    void *args[6] = { data, &v, &flag, &threads, &stream, &ret };
}
"""


def test_lengths_of_arguments_are_checked_with_a_header(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    path.with_suffix(".h").write_text(HEADER)
    checked = load_object(path, PTX)
    assert checked.argument_sizes == [8, 4, 8, 4]
    data = np.arange(32, dtype=np.float32)
    checked.run(data.ctypes.data.to_bytes(8, "little"), 1.0, None, 32, chip="sm_90a", tensors={"data": data})
    assert np.array_equal(data, np.arange(32) + np.float32(1))
    with pytest.raises(ValueError, match="argument 0: 4 bytes; accepted: 8 bytes"):
        checked.run(bytes(4), 1.0, None, 32, chip="sm_90a")
    with pytest.raises(ValueError, match="arguments: 3; the launcher takes 4"):
        checked.run(data, 1.0, None, chip="sm_90a")
    assert load_object(path, PTX, header=path.with_suffix(".h")).argument_sizes == checked.argument_sizes


def test_a_structure_is_not_a_pointer(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    header = tmp_path / "other.h"
    header.write_text(HEADER.replace("void *data;", "void *data; int32_t dynamic_shapes[1];"))
    checked = load_object(path, PTX, header=header)
    with pytest.raises(ValueError, match="argument 0: ndarray; accepted: 16 bytes"):
        checked.run(np.zeros(32, np.float32), 1.0, None, 32, chip="sm_90a")


@pytest.mark.parametrize("with_header", [True, False])
def test_a_launcher_without_a_stream(tmp_path: Path, with_header: bool) -> None:
    path = compiled(tmp_path, stream=False)
    if with_header:
        header = HEADER.replace(", cudaStream_t stream", "").replace("[6]", "[5]").replace("&stream, ", "")
        path.with_suffix(".h").write_text(header)
    loaded = load_object(path, PTX)
    data = np.arange(32, dtype=np.float32)
    loaded.run(data, 1.0, None, 32, chip="sm_90a")
    assert np.array_equal(data, np.arange(32) + np.float32(1))
    with pytest.raises(EmulatorFault, match="out of bounds"):
        loaded.run(data, 1.0, None, 64, chip="sm_90a")
    if with_header:
        with pytest.raises(ValueError, match="arguments: 3; the launcher takes 4"):
            loaded.run(data, 1.0, None, chip="sm_90a")


def test_the_header_says_the_types(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    path.with_suffix(".h").write_text(HEADER)
    checked = load_object(path, PTX)
    data = np.zeros(32, np.float32)
    checked.run(data, 2, None, 32.0, chip="sm_90a")
    assert (data == 2).all()
    for wrong, message in ((2**24 + 1, "not exactly a number of .f32"), (data, "ndarray, whose address would be")):
        with pytest.raises(ValueError, match=f"argument 1: .*{message}"):
            checked.run(data, wrong, None, 32, chip="sm_90a")
    with pytest.raises(ValueError, match=r"argument 3: 32\.5; the parameter is \.s32"):
        checked.run(data, 1.0, None, 32.5, chip="sm_90a")
