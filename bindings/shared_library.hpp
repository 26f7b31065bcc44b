// A shared library opened at run time, so that the wheel links to no vendor library.
#pragma once

#include <string>

namespace msa_ops {

class SharedLibrary {
 public:
  // Opens the library; valid() is false and error() tells why when it is not on this machine.
  explicit SharedLibrary(const char* soname);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  bool valid() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }

  // The symbol, or nullptr.
  void* symbol(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace msa_ops
