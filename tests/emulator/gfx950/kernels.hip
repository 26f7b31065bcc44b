// Kernels of the usual kinds, without HIP's headers: a sum of two arrays, a sum over workgroups, a transposition, a product.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
typedef float f4 __attribute__((ext_vector_type(4)));
typedef __bf16 b8 __attribute__((ext_vector_type(8)));
static inline __device__ int tid() { return __builtin_amdgcn_workitem_id_x(); }
static inline __device__ int bid() { return __builtin_amdgcn_workgroup_id_x(); }
static inline __device__ void sync() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = bid() * __builtin_amdgcn_workgroup_size_x() + tid();
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void total(const float* x, float* out, int n) {
  __shared__ float part[256];
  float s = 0;
  for (int i = bid() * 256 + tid(); i < n; i += __builtin_amdgcn_grid_size_x()) s += x[i];
  part[tid()] = s; sync();
  for (int k = 128; k > 0; k /= 2) { if (tid() < k) part[tid()] += part[tid() + k]; sync(); }
  if (tid() == 0) __hip_atomic_fetch_add(out, part[0], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
extern "C" __global__ void transpose(const float* x, float* y, int n) {
  __shared__ float tile[16][17];
  int c = tid() % 16, r = tid() / 16, bx = bid() % (n / 16), by = bid() / (n / 16);
  tile[r][c] = x[(by * 16 + r) * n + bx * 16 + c]; sync();
  y[(bx * 16 + r) * n + by * 16 + c] = tile[c][r];
}
extern "C" __global__ void product(const __bf16* a, const __bf16* b, float* c, int k) {
  int lane = tid(); f4 acc = 0;
  for (int i = 0; i < k; i += 32) {
    b8 p = *(const b8*)(a + (lane % 16) * k + i + lane / 16 * 8), q = *(const b8*)(b + (lane % 16) * k + i + lane / 16 * 8);
    acc = __builtin_amdgcn_mfma_f32_16x16x32_bf16(p, q, acc, 0, 0, 0);
  }
  for (int i = 0; i < 4; ++i) c[(lane / 16 * 4 + i) * 16 + lane % 16] = acc[i];
}
