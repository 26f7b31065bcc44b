"""Launches through libamdhip64, of which a stand-in is compiled here: it writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from msa_ops import _C

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _C.code_objects(), reason="this build of msa_ops holds no AMD code objects"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build a stand-in for libamdhip64"),
]

LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static __thread int device = 0, last_error = 0;
static __thread int mode = 0;  // of a capture that is under way: global, as torch's are
static int failed(int e) { if (e) last_error = e; return e; }
static int fails(const char* what) {
  const char* wish = getenv("FAIL"); return failed(wish && !strcmp(wish, what) ? 209 : 0);
}
__attribute__((constructor)) static void opened(void) { printf("opened " WHERE "\n"); }
const char* hipGetErrorName(int e) {
  return e == 209 ? "hipErrorNoBinaryForGpu" : e == 900 ? "hipErrorStreamCaptureUnsupported" : "hipErrorUnknown";
}
const char* hipGetErrorString(int e) { return "no kernel image is available"; }
int hipGetLastError(void) { int e = last_error; last_error = 0; return e; }
int hipGetDevice(int* d) { *d = device; return 0; }
int hipSetDevice(int d) { if (d > 1) return failed(101); printf("device %d\n", d); device = d; return 0; }
int hipThreadExchangeStreamCaptureMode(int* m) { int old = mode; mode = *m; *m = old; return 0; }
int hipModuleLoadData(void** m, const void* data) {
  if (getenv("CAPTURING") && mode != 2) return failed(900);
  usleep(20000);
  printf("load %.3s\n", (const char*)data + 1); *m = (void*)(100L + device); return fails("load");
}
int hipModuleGetFunction(void** f, void* m, const char* name) {
  printf("function %s of %ld\n", name, (long)m); *f = (void*)7L; return fails("function");
}
#ifndef OLD
int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void* stream, void** params, void** extra) {
  char text[4096]; int n = 0;
  n += sprintf(text + n, "launch %ld grid %u %u %u block %u %u %u", (long)f, gx, gy, gz, bx, by, bz);
  n += sprintf(text + n, " lds %u stream %ld mode %d", lds, (long)stream, mode);
  if (params || extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4] != (void*)3) return 1;
  n += sprintf(text + n, " arguments ");
  for (size_t i = 0; i < *(size_t*)extra[3]; ++i) n += sprintf(text + n, "%02x", ((unsigned char*)extra[1])[i]);
  printf("%s\n", text); return fails("launch");
}
#endif
"""

LAUNCH = """
import os
from msa_ops import _C
position = _C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950")
values = [0x1000, 0x2000, 0x3000, 0, 0x3F800000, -1]
def launch(device=0, stream=0, num_workgroups=1):
    _C.launch_code_object(position, device, stream, num_workgroups, values)
def say(*what):
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())
{body}
"""


def build(folder: Path, old: bool = False) -> Path:
    """A library in the folder; it writes its lines to the process's standard output, without a buffer."""
    folder.mkdir(exist_ok=True)
    source = folder / "hip.c"
    source.write_text(LIBRARY.replace('printf("opened', 'setvbuf(stdout, 0, _IONBF, 0); printf("opened'))
    made = folder / "libamdhip64.so.7"
    defines = [f'-DWHERE="{folder.name}"', *(["-DOLD"] if old else [])]
    subprocess.run(["cc", "-shared", "-fPIC", *defines, "-o", str(made), str(source)], check=True)
    return made


def run(
    folder: Path, body: str, fail: str = "", old: bool = False, found: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    build(folder, old)
    code = LAUNCH.format(body=textwrap.dedent(body))
    paths = {"LD_LIBRARY_PATH": str(folder)} if found else {}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **paths, "FAIL": fail, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_launch(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        say("before")
        for device, stream in ((0, 5), (0, 6), (1, 5)):
            launch(device, stream, 3)
        """,
    )
    assert done.returncode == 0, done.stderr
    arguments = "".join(
        value.to_bytes(size, "little").hex()
        for value, size in ((0x1000, 8), (0x2000, 8), (0x3000, 8), (0, 8), (0x3F800000, 4), (0, 4), (2**64 - 1, 8))
    )
    kernel = _C.code_object(_C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950"))["kernel"]
    launched = "launch 7 grid 3 1 1 block 256 1 1 lds 0 stream {} mode 0 arguments " + arguments
    assert done.stdout.splitlines() == [
        "before",
        f"opened {tmp_path.name}",  # at the first launch
        "load ELF",
        f"function {kernel} of 100",
        launched.format(5),
        launched.format(6),  # the code is loaded once a device
        "device 1",
        "load ELF",
        f"function {kernel} of 101",
        launched.format(5),
        "device 0",  # as it was before
    ]


@pytest.mark.parametrize(
    ("fail", "said"),
    [("load", "hipModuleLoadData"), ("function", "hipModuleGetFunction"), ("launch", "hipModuleLaunchKernel")],
)
def test_an_error_names_kernel_and_cause_and_leaves_the_process_usable(tmp_path: Path, fail: str, said: str) -> None:
    done = run(
        tmp_path,
        """
        import ctypes
        try:
            launch(num_workgroups=3)
        except RuntimeError as error:
            say("caught", error)
        os.environ["FAIL"] = ""
        say("last error", ctypes.CDLL("libamdhip64.so.7").hipGetLastError())
        launch()
        """,
        fail,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (caught,) = [line for line in lines if line.startswith("caught")]
    assert f"{said} failed: hipErrorNoBinaryForGpu: no kernel image" in caught and "kernel quantize_nvfp4" in caught
    assert "(3 x 1 x 1 workgroups of 256 x 1 x 1, 0 bytes of dynamic LDS, device 0)" in caught
    assert "last error 0" in lines and lines[-1].startswith("launch 7 grid 1 1 1")


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        try:
            launch(device=2)
        except RuntimeError as error:
            say("caught", error)
        launch()
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "device 2): hipSetDevice failed: hipErrorUnknown" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("launch 7 grid 1 1 1")


def test_a_first_call_while_torch_captures_a_graph(tmp_path: Path) -> None:
    """Loading is refused in the mode of torch's captures; the launch itself is recorded in that mode."""
    done = run(tmp_path, "launch(stream=9)\nlaunch(stream=9)", CAPTURING="1")
    assert done.returncode == 0, done.stderr
    launches = [line for line in done.stdout.splitlines() if line.startswith("launch")]
    assert len(launches) == 2 and all(" stream 9 mode 0 " in line for line in launches)


def test_many_threads_at_their_first_call(tmp_path: Path) -> None:
    """The library is opened once and the code loaded once a device; a thread's device stays as it was."""
    done = run(
        tmp_path,
        """
        import threading
        start = threading.Barrier(8)
        def work(i):
            start.wait()
            launch(device=i % 2, stream=i, num_workgroups=i + 1)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.count(f"opened {tmp_path.name}") == 1
    assert lines.count("load ELF") == 2
    launches = sorted(line.split(" block")[0] for line in lines if line.startswith("launch"))
    assert launches == [f"launch 7 grid {i} 1 1" for i in range(1, 9)]
    assert sorted(line for line in lines if line.startswith("device")) == ["device 0"] * 4 + ["device 1"] * 4


def test_the_copy_that_is_loaded_already_is_used(tmp_path: Path) -> None:
    """torch brings a library of its own: streams belong to it, whatever else would be found first."""
    build(tmp_path / "of_torch")
    done = run(
        tmp_path / "of_the_system",
        f"""
        import ctypes
        torch = ctypes.CDLL({str(tmp_path / "of_torch" / "libamdhip64.so.7")!r})
        launch()
        """,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("opened")] == ["opened of_torch"]


def test_the_current_stream_of_torch_is_used(tmp_path: Path) -> None:
    """msa_ops.amd.launch asks torch for the raw stream of the tensors' device at every call."""
    done = run(
        tmp_path,
        """
        import torch
        from msa_ops.amd.launch import launch as on_torch
        streams = {0: 41, 1: 42}
        torch._C._cuda_getCurrentRawStream = streams.__getitem__
        name = "quantize_nvfp4__bfloat16_plain_divide__gfx950"
        on_torch(name, torch.device("cuda", 1), 2, *values)
        streams[1] = 43
        on_torch(name, torch.device("cuda", 1), 2, *values)
        on_torch(name, torch.device("cuda", 0), 2, *values)
        """,
    )
    assert done.returncode == 0, done.stderr
    launches = [line for line in done.stdout.splitlines() if line.startswith("launch")]
    assert [line.split(" stream ")[1].split()[0] for line in launches] == ["42", "43", "41"]


@pytest.mark.parametrize(("old", "said"), [(True, "libamdhip64 lacks hipModuleLaunchKernel")])
def test_a_library_without_a_function(tmp_path: Path, old: bool, said: str) -> None:
    done = run(tmp_path, "launch()", old=old)
    assert done.returncode == 1 and said in done.stderr


def test_no_library_is_an_error_and_no_abort() -> None:
    position = _C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no HIP runtime: libamdhip64"):
            _C.launch_code_object(position, 0, 0, 1, [0] * 6)


@pytest.mark.parametrize("num_workgroups", [0, 2**24])
def test_more_work_items_than_a_launch_can_count(num_workgroups: int) -> None:
    position = _C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950")
    with pytest.raises(ValueError, match=f"{num_workgroups} workgroups of 256; accepted: 1 to 4294967295 work-items"):
        _C.launch_code_object(position, 0, 0, num_workgroups, [0] * 6)


@pytest.mark.parametrize("values", [[0] * 5, [0] * 7])
def test_number_of_arguments(values: list[int]) -> None:
    position = _C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950")
    with pytest.raises(ValueError, match=f"takes 6 arguments; {len(values)} given"):
        _C.kernel_arguments(position, values)


@pytest.mark.parametrize("value", [2**32, -(2**31) - 1])
def test_an_argument_that_does_not_fit(value: int) -> None:
    position = _C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950")
    with pytest.raises(ValueError, match=f"argument 4 is {value}; it has 32 bits"):
        _C.kernel_arguments(position, [0, 0, 0, 0, value, 0])
