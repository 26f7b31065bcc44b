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
static int (*held)(void);  /* asked at each launch: whether this thread holds Python's interpreter */
void ask_at_launches(int (*question)(void)) { held = question; }
static int parameters = 0;  /* of 8 bytes each, that a launch writes down */
void show_parameters(int n) { parameters = n; }

/* A launch or a clearing: done at once, or kept as a node of the graph that its stream is captured into. */
typedef struct Node {
  struct Node* next; const char* kernel; unsigned grid[3], block; long values[48]; uint64_t address; size_t bytes;
} Node;
typedef struct { Node* first; Node* last; } Graph;
static struct { long stream; Graph* graph; } capturing[64];
static Graph* captured_of(void* stream) {
  for (int i = 0; i < 64; ++i) if (capturing[i].graph && capturing[i].stream == (long)stream) return capturing[i].graph;
  return 0;
}
static void do_node(const Node* node, void* stream) {
  char text[4096]; int n = 0;
  if (!node->kernel) {
    say("clear %zu with 0 stream %ld\n", node->bytes, (long)stream); memset((void*)node->address, 0, node->bytes);
    return;
  }
  n += sprintf(text, "launch %s grid %u %u %u block %u stream %ld context %ld",
               strstr(node->kernel, "cute") ? "cute" : "?", node->grid[0], node->grid[1], node->grid[2], node->block,
               (long)stream, (long)current);
  if (held) n += sprintf(text + n, " held %d", held());
  for (int i = 0; i < parameters; ++i) n += sprintf(text + n, " %lx", node->values[i]);
  say("%s\n", text);
}
static int take(Node node, void* stream) {
  Graph* graph = captured_of(stream);
  if (!graph) { do_node(&node, stream); return 0; }
  Node* kept = malloc(sizeof node); *kept = node; kept->next = 0;
  if (graph->last) graph->last->next = kept; else graph->first = kept;
  graph->last = kept; return 0;
}
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void* stream) {
  Node node = {0}; node.address = at; node.bytes = bytes;
  if (value) abort();
  int status = take(node, stream); return status ? status : fails("cuMemsetD8Async");
}
static void arguments(Node* node, void** p) { for (int i = 0; i < parameters; ++i) node->values[i] = *(long*)p[i]; }
int cuLaunchKernelEx(const Config* c, void* k, void** p, void** e) {
  Node node = {0, k, {c->grid[0], c->grid[1], c->grid[2]}, c->block[0]};
  arguments(&node, p);
  int status = take(node, c->stream); return status ? status : fails("cuLaunchKernelEx");
}
static long streams = 1000;
int cuStreamCreate(void** s, unsigned flags) {
  *s = (void*)__sync_add_and_fetch(&streams, 1); return fails("cuStreamCreate");
}
int cuStreamDestroy_v2(void* s) { return 0; }
int cuStreamIsCapturing(void* s, int* status) { *status = getenv("CAPTURING") || captured_of(s); return 0; }
int cuThreadExchangeStreamCaptureMode(int* mode) {
  static __thread int now = 0; int old = now; now = *mode; *mode = old; say("mode %d\n", now); return 0;
}
int cuStreamBeginCapture_v2(void* s, int mode) {
  for (int i = 0; i < 64; ++i) if (__sync_bool_compare_and_swap(&capturing[i].graph, 0, calloc(1, sizeof(Graph)))) {
    capturing[i].stream = (long)s; say("capture\n"); return fails("cuStreamBeginCapture_v2");
  }
  abort();
}
int cuStreamGetCaptureInfo_v3(void* s, int* status, void* id, void** graph, void*** nodes, void** edges, size_t* n) {
  Graph* of = captured_of(s); if (!of) return 1;
  *status = 1; *nodes = (void**)&of->last; *n = of->last ? 1 : 0; return fails("cuStreamGetCaptureInfo_v3");
}
int cuStreamEndCapture(void* s, void** graph) {
  for (int i = 0; i < 64; ++i) if (capturing[i].graph && capturing[i].stream == (long)s) {
    *graph = capturing[i].graph; capturing[i].graph = 0; return fails("cuStreamEndCapture");
  }
  return 1;
}
/* An executable graph: copies of the nodes, each with the node that it is a copy of. */
typedef struct { Node copy; Node* of; } Step;
typedef struct { int count; Step steps[64]; } Executable;
int cuGraphInstantiateWithFlags(void** e, Graph* graph, unsigned long long flags) {
  Executable* made = calloc(1, sizeof *made);
  for (Node* node = graph->first; node; node = node->next) {
    made->steps[made->count].copy = *node; made->steps[made->count++].of = node;
  }
  *e = made; say("instantiate %d\n", made->count); return fails("cuGraphInstantiateWithFlags");
}
int cuGraphDestroy(Graph* graph) {
  for (Node* node = graph->first; node;) { Node* next = node->next; free(node); node = next; }
  free(graph); say("destroy graph\n"); return 0;
}
int cuGraphExecDestroy(Executable* e) { free(e); say("destroy executable\n"); return 0; }
static Node* step_of(Executable* e, Node* node) {
  for (int i = 0; i < e->count; ++i) if (e->steps[i].of == node) return &e->steps[i].copy;
  abort();
}
typedef struct { void* function; unsigned grid[3], block[3], shared; void **parameters, **extra, *kernel, *context; }
    KernelNode;
int cuGraphExecKernelNodeSetParams_v2(Executable* e, Node* node, const KernelNode* set) {
  Node* step = step_of(e, node); if (!step->kernel || set->function) return 1;
  step->kernel = set->kernel; arguments(step, set->parameters); say("set kernel\n");
  return fails("cuGraphExecKernelNodeSetParams_v2");
}
typedef struct { uint64_t address; size_t pitch; unsigned value, element; size_t width, height; } ClearNode;
int cuGraphExecMemsetNodeSetParams(Executable* e, Node* node, const ClearNode* set, void* context) {
  Node* step = step_of(e, node); if (step->kernel || set->value || set->element != 1 || set->height != 1) return 1;
  step->address = set->address; step->bytes = set->width; say("set clear context %ld\n", (long)context); return 0;
}
int cuGraphLaunch(Executable* e, void* stream) {
  if (fails("cuGraphLaunch")) return 719;
  say("graph of %d\n", e->count);
  for (int i = 0; i < e->count; ++i) do_node(&e->steps[i].copy, stream);
  return 0;
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
