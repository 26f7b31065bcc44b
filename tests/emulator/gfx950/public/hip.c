// Stands in for libamdhip64.so.7 where FlyDSL's runtime wants it: memory is the host's, launches go to `launch`.
#include <stdlib.h>
#include <string.h>

typedef int (*Load)(void **module, const void *image);
typedef int (*Function)(void **function, void *module, const char *name);
typedef int (*Launch)(void *function, const unsigned *shape, unsigned lds, void **parameters, void **extra);
typedef int (*Memory)(void **address, size_t bytes);  // bytes 0: gives it back

static struct {
  Load load;
  Function function;
  Launch launch;
  Memory memory;
} host;

void msa_ops_connect(Load load, Function function, Launch launch, Memory memory) {
  host.load = load;
  host.function = function;
  host.launch = launch;
  host.memory = memory;
}

int hipModuleLoadData(void **module, const void *image) { return host.load(module, image); }
int hipModuleUnload(void *module) { (void)module; return 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) { return host.function(function, module, name); }
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **parameters, void **extra) {
  (void)stream;
  const unsigned shape[6] = {gx, gy, gz, bx, by, bz};
  return host.launch(function, shape, lds, parameters, extra);
}
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t lds) {
  (void)function; (void)threads; (void)lds;
  *blocks = 1;
  return 0;
}

int hipMalloc(void **address, size_t bytes) { return host.memory(address, bytes ? bytes : 1); }
int hipFree(void *address) { return address ? host.memory(&address, 0) : 0; }
int hipMemcpy(void *to, const void *from, size_t bytes, int kind) { (void)kind; memmove(to, from, bytes); return 0; }
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  (void)kind; (void)stream;
  memmove(to, from, bytes);
  return 0;
}
int hipMemset(void *to, int value, size_t bytes) { memset(to, value, bytes); return 0; }
int hipMemsetD16Async(void *to, unsigned short value, size_t count, void *stream) {
  (void)stream;
  for (size_t i = 0; i < count; ++i) memcpy((char *)to + 2 * i, &value, 2);
  return 0;
}
int hipMemsetD32Async(void *to, int value, size_t count, void *stream) {
  (void)stream;
  for (size_t i = 0; i < count; ++i) memcpy((char *)to + 4 * i, &value, 4);
  return 0;
}
int hipHostRegister(void *address, size_t bytes, unsigned flags) { (void)address; (void)bytes; (void)flags; return 0; }
int hipHostUnregister(void *address) { (void)address; return 0; }
int hipHostGetDevicePointer(void **device, void *address, unsigned flags) { (void)flags; *device = address; return 0; }

// Launches have ended when they return, so that there is nothing to wait for.
int hipDeviceSynchronize(void) { return 0; }
int hipStreamCreate(void **stream) { *stream = malloc(1); return 0; }
int hipStreamDestroy(void *stream) { free(stream); return 0; }
int hipStreamSynchronize(void *stream) { (void)stream; return 0; }
int hipStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream; (void)event; (void)flags; return 0; }
int hipEventCreateWithFlags(void **event, unsigned flags) { (void)flags; *event = malloc(1); return 0; }
int hipEventDestroy(void *event) { free(event); return 0; }
int hipEventRecord(void *event, void *stream) { (void)event; (void)stream; return 0; }
int hipEventSynchronize(void *event) { (void)event; return 0; }
int hipGetDevice(int *device) { *device = 0; return 0; }
int hipSetDevice(int device) { (void)device; return 0; }
int hipGetLastError(void) { return 0; }
const char *hipGetErrorName(int error) { return error ? "error of the emulated launch" : "hipSuccess"; }
