#include "lazy_bytes.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace msa_ops::emulator {
namespace {

constexpr std::size_t kMany = 64 * 1024;  // from here on it is cheaper to give pages back than to write zeros

}  // namespace

LazyBytes::LazyBytes(std::size_t size) : size_(size) {
  if (size == 0) return;
  void* const made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_NOHUGEPAGE
  madvise(made, size, MADV_NOHUGEPAGE);  // else one byte may take two megabytes
#endif
  data_ = static_cast<unsigned char*>(made);
}

LazyBytes::~LazyBytes() {
  if (data_ != nullptr) munmap(data_, size_);
}

void LazyBytes::clear(std::size_t start, std::size_t count) {
  if (count == 0) return;
  unsigned char* const first = data_ + start;
#ifdef __linux__
  // Elsewhere MADV_DONTNEED does not promise zeros.
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  if (count >= kMany) {
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    const std::uintptr_t low = (begin + page - 1) / page * page, high = (begin + count) / page * page;
    if (madvise(reinterpret_cast<void*>(low), high - low, MADV_DONTNEED) == 0) {
      std::memset(first, 0, low - begin);
      std::memset(reinterpret_cast<void*>(high), 0, begin + count - high);
      return;
    }
  }
#endif
  std::memset(first, 0, count);
}

}  // namespace msa_ops::emulator
