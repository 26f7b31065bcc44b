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
static int device = 0;
static int fails(const char* what) { const char* wish = getenv("FAIL"); return wish && !strcmp(wish, what) ? 209 : 0; }
const char* hipGetErrorName(int e) { return e == 209 ? "hipErrorNoBinaryForGpu" : "hipErrorUnknown"; }
const char* hipGetErrorString(int e) { return "no kernel image is available"; }
int hipGetDevice(int* d) { *d = device; return 0; }
int hipSetDevice(int d) { printf("device %d\n", d); device = d; return 0; }
int hipModuleLoadData(void** m, const void* data) {
  printf("load %.3s\n", (const char*)data + 1); *m = (void*)(100L + device); return fails("load");
}
int hipModuleGetFunction(void** f, void* m, const char* name) {
  printf("function %s of %ld\n", name, (long)m); *f = (void*)7L; return fails("function");
}
#ifndef OLD
int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void* stream, void** params, void** extra) {
  printf("launch %ld grid %u %u %u block %u %u %u", (long)f, gx, gy, gz, bx, by, bz);
  printf(" lds %u stream %ld", lds, (long)stream);
  if (params || extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4] != (void*)3) return 1;
  printf(" arguments ");
  for (size_t i = 0; i < *(size_t*)extra[3]; ++i) printf("%02x", ((unsigned char*)extra[1])[i]);
  printf("\n"); return fails("launch");
}
#endif
"""

LAUNCH = """
from msa_ops import _C
position = _C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950")
values = [0x1000, 0x2000, 0x3000, 0, 0x3F800000, -1]
{body}
"""


def run(folder: Path, body: str, fail: str = "", old: bool = False) -> subprocess.CompletedProcess[str]:
    source = folder / "hip.c"
    source.write_text(LIBRARY)
    command = [
        "cc",
        "-shared",
        "-fPIC",
        *(["-DOLD"] if old else []),
        "-o",
        str(folder / "libamdhip64.so.7"),
        str(source),
    ]
    subprocess.run(command, check=True)
    code = LAUNCH.format(body=textwrap.dedent(body))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAIL": fail}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)


def test_launch(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        for device, stream in ((0, 5), (0, 6), (1, 5)):
            _C.launch_code_object(position, device, stream, 3, values)
        """,
    )
    assert done.returncode == 0, done.stderr
    arguments = "".join(
        value.to_bytes(size, "little").hex()
        for value, size in ((0x1000, 8), (0x2000, 8), (0x3000, 8), (0, 8), (0x3F800000, 4), (0, 4), (2**64 - 1, 8))
    )
    kernel = _C.code_object(_C.find_code_object("quantize_nvfp4__bfloat16_plain_divide__gfx950"))["kernel"]
    launched = "launch 7 grid 3 1 1 block 256 1 1 lds 0 stream {} arguments " + arguments
    assert done.stdout.splitlines() == [
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
        import os
        try:
            _C.launch_code_object(position, 0, 0, 1, values)
        except RuntimeError as error:
            print("caught", error)
        os.environ["FAIL"] = ""
        _C.launch_code_object(position, 0, 0, 1, values)
        """,
        fail,
    )
    assert done.returncode == 0, done.stderr
    (caught,) = [line for line in done.stdout.splitlines() if line.startswith("caught")]
    assert f"{said} failed: hipErrorNoBinaryForGpu: no kernel image" in caught and "kernel quantize_nvfp4" in caught


@pytest.mark.parametrize(("old", "said"), [(True, "libamdhip64 lacks hipModuleLaunchKernel")])
def test_a_library_without_a_function(tmp_path: Path, old: bool, said: str) -> None:
    done = run(tmp_path, "_C.launch_code_object(position, 0, 0, 1, values)", old=old)
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
