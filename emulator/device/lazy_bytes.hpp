// Bytes that are zero until they are written, and take memory of the host only where they are touched.
#pragma once

#include <cstddef>

namespace msa_ops::emulator {

class LazyBytes {
 public:
  explicit LazyBytes(std::size_t size);  // Throws std::bad_alloc
  ~LazyBytes();
  LazyBytes(const LazyBytes&) = delete;
  LazyBytes& operator=(const LazyBytes&) = delete;

  std::size_t size() const { return size_; }
  unsigned char* data() { return data_; }
  const unsigned char* data() const { return data_; }
  // These are zero again. Many at once are given back to the host.
  void clear() { clear(0, size_); }
  void clear(std::size_t start, std::size_t count);

 private:
  std::size_t size_;
  unsigned char* data_ = nullptr;
};

}  // namespace msa_ops::emulator
