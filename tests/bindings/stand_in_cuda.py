"""A stand-in for libcuda.so.1 that writes down what it is asked for, compiled here, and processes that find it.

It also lends torch's tensors a device: memory of the CPU counts as memory of CUDA device 0, allocated and freed through
it. `DEVICE_OF_TORCH` does so in a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msa_ops

LIBRARY = r"""
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { int id, padding; unsigned char value[64]; } Attribute;
typedef struct { unsigned grid[3], block[3], shared; void* stream; Attribute* attributes; unsigned count; } Config;
#define CONTEXT(d) ((void*)(100L + (d)))
static __thread void* current = 0;
static void say(const char* format, ...) {  /* one write a line: threads do not mix theirs */
  char line[8192]; va_list values; va_start(values, format);
  int n = vsnprintf(line, sizeof line, format, values); va_end(values);
  if (write(1, line, n) != n) abort();
}
static int fails(const char* what) {
  const char* wish = getenv("FAIL"); return wish && !strcmp(wish, what) ? 719 : 0;
}
__attribute__((constructor)) static void opened(void) { say("opened\n"); }
int cuInit(unsigned flags) { return fails("cuInit"); }
int cuGetErrorName(int e, const char** s) { *s = e == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OTHER"; return 0; }
int cuGetErrorString(int e, const char** s) { *s = "unspecified launch failure"; return 0; }
int cuCtxGetCurrent(void** c) { *c = current; return 0; }
int cuCtxPushCurrent_v2(void* c) { say("push %ld\n", (long)c); current = c; return 0; }
int cuCtxPopCurrent_v2(void** c) { say("pop %ld\n", (long)current); *c = current; current = 0; return 0; }
int cuCtxGetDevice(int* d) { *d = (int)((long)current - 100); return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) {
  if (d > 1) return 101;
  say("retain %d\n", d); *c = CONTEXT(d); return fails("cuDevicePrimaryCtxRetain");
}
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 97 ? 232448 : 0; return 0; }
int cuLibraryLoadData(void** l, const void* code, void* a, void* b, unsigned c, void* d, void** e, unsigned f) {
  usleep(20000); say("load\n"); *l = (void*)code; return fails("cuLibraryLoadData");
}
int cuLibraryGetKernel(void** k, void* l, const char* name) {
  say("kernel\n"); *k = strdup(name); return fails("cuLibraryGetKernel");
}
int cuKernelGetAttribute(int* v, int a, void* k, int d) { *v = 0; return 0; }
int cuKernelSetAttribute(int a, int v, void* k, int d) { return fails("cuKernelSetAttribute"); }
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t n, void* stream) {
  say("clear %zu with %u stream %ld\n", n, value, (long)stream); memset((void*)at, value, n);
  return fails("cuMemsetD8Async");
}
static int (*held)(void);  /* asked at each launch: whether this thread holds Python's interpreter */
void ask_at_launches(int (*question)(void)) { held = question; }
static int parameters = 0;  /* of 8 bytes each, that a launch writes down */
void show_parameters(int n) { parameters = n; }
int cuLaunchKernelEx(const Config* c, void* k, void** p, void** e) {
  char text[4096]; int n = 0;
  n += sprintf(text, "launch %s grid %u %u %u block %u stream %ld context %ld", strstr((char*)k, "cute") ? "cute" : "?",
               c->grid[0], c->grid[1], c->grid[2], c->block[0], (long)c->stream, (long)current);
  if (held) n += sprintf(text + n, " held %d", held());
  for (int i = 0; i < parameters; ++i) n += sprintf(text + n, " %lx", *(long*)p[i]);
  say("%s\n", text); return fails("cuLaunchKernelEx");
}
int cuTensorMapEncodeTiled() { return 0; }

/* DLPack's exchange functions of torch, with the CPU's memory on device 0 of CUDA. */
typedef struct { int32_t type, id; } Device;
typedef struct { void* data; Device device; int32_t ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct Managed { uint32_t major, minor; void* context; void (*deleter)(struct Managed*); uint64_t flags;
                         Tensor tensor; } Managed;
typedef void (*SetError)(void*, const char*, const char*);
typedef struct Api { uint32_t major, minor; struct Api* previous; int (*allocate)(Tensor*, Managed**, void*, SetError);
                     void *a, *b; int (*read)(void*, Tensor*); int (*stream)(int32_t, int32_t, void**); } Api;
static Api* of_torch; static Api lent; static void (*delete_of_torch)(Managed*);
static void delete(Managed* m) { say("free %ld\n", (long)m->tensor.shape[0]); delete_of_torch(m); }
static int allocate(Tensor* like, Managed** made, void* context, SetError failed) {
  if (fails("allocate")) return -1;
  Tensor on_cpu = *like; on_cpu.device.type = 1; on_cpu.device.id = 0;
  int status = of_torch->allocate(&on_cpu, made, context, failed); if (status) return status;
  say("allocate %ld\n", (long)like->shape[0]);
  delete_of_torch = (*made)->deleter; (*made)->deleter = delete; (*made)->tensor.device = like->device; return 0;
}
static int read_tensor(void* object, Tensor* t) {
  int status = of_torch->read(object, t); if (!status) t->device.type = 2; return status;
}
static long stream_now = 16;
void set_stream(long s) { stream_now = s; }
static int stream(int32_t type, int32_t device, void** s) { *s = (void*)stream_now; return 0; }
Api* lend(Api* api) {
  of_torch = api; lent = *api; lent.allocate = allocate; lent.read = read_tensor; lent.stream = stream; return &lent;
}
"""

DEVICE_OF_TORCH = """
import ctypes, torch
stand_in = ctypes.CDLL("libcuda.so.1")
capsules = ctypes.pythonapi
capsules.PyCapsule_GetPointer.restype, capsules.PyCapsule_New.restype = ctypes.c_void_p, ctypes.py_object
capsules.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsules.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
stand_in.lend.restype, stand_in.lend.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
stand_in.set_stream.argtypes = [ctypes.c_long]
stand_in.ask_at_launches.argtypes = [ctypes.c_void_p]
capsule_name = ctypes.create_string_buffer(b"dlpack_exchange_api")
of_torch = torch.Tensor.__dlpack_c_exchange_api__
lent = stand_in.lend(capsules.PyCapsule_GetPointer(of_torch, capsule_name))
torch.Tensor.__dlpack_c_exchange_api__ = capsules.PyCapsule_New(lent, capsule_name, None)
from msa_ops import _C
READER = _C.SignatureReader(torch.Tensor, torch.nn.Parameter)
torch.Tensor.__dlpack_c_exchange_api__ = of_torch
"""


def build(folder: Path, without: str = "") -> None:
    """The library, in the folder. without: a function that it lacks."""
    source = folder / "cuda.c"
    source.write_text(LIBRARY.replace(f"int {without}(", "static int lacking(") if without else LIBRARY)
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)


def run(folder: Path, code: str, *, without: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Executes Python code in a process that finds the stand-in."""
    build(folder, without)
    package = str(Path(msa_ops.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": package, "LD_LIBRARY_PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
