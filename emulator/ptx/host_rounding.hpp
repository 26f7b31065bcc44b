// The host's rounding of fp64 while a value of this class lives, by the name that PTX gives it.
#pragma once

#include <array>
#include <cfenv>
#include <utility>

namespace msa_ops::emulator::ptx {

constexpr std::array<std::pair<const char*, int>, 5> kHostRoundings{{{"", FE_TONEAREST},
                                                                     {".rn", FE_TONEAREST},
                                                                     {".rz", FE_TOWARDZERO},
                                                                     {".rm", FE_DOWNWARD},
                                                                     {".rp", FE_UPWARD}}};

class HostRounding {
 public:
  explicit HostRounding(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  ~HostRounding() { std::fesetround(before_); }
  HostRounding(const HostRounding&) = delete;
  HostRounding& operator=(const HostRounding&) = delete;

 private:
  int before_;
};

}  // namespace msa_ops::emulator::ptx
