// The part of DLPack's C ABI (version 1) that reading a tensor's metadata takes: dmlc/dlpack, dlpack.h.
#pragma once

#include <cstdint>

namespace msa_ops::dlpack {

constexpr std::uint32_t kMajorVersion = 1;

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements
  std::uint64_t byte_offset;
};

// A tensor that its holder releases by `deleter`.
struct ManagedTensor {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  Tensor tensor;
};

// What a framework offers through `__dlpack_c_exchange_api__` of its tensor type, for use from C.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  ExchangeApi* previous;
  // Memory for ndim, shape, dtype and device of `prototype`; calls set_error if it returns something but 0.
  int (*allocate)(Tensor* prototype, ManagedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  void* managed_from_object;
  void* object_from_managed;
  int (*tensor_from_object)(void* object, Tensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** stream);
};

}  // namespace msa_ops::dlpack
