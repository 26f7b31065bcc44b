// Why a PTX text cannot be executed: found before anything runs, but for what pointers to functions lead to.
#pragma once

#include <stdexcept>
#include <string>

namespace msa_ops::emulator::ptx {

class PtxError : public std::runtime_error {
 public:
  PtxError(const std::string& message, int line)
      : std::runtime_error(message + " at line " + std::to_string(line)), line(line) {}
  const int line;
};

// Correct PTX, as far as known, that the emulator does not execute.
class Unsupported : public PtxError {
 public:
  Unsupported(const std::string& what, int line) : PtxError("unsupported: `" + what + "`", line) {}
};

}  // namespace msa_ops::emulator::ptx
