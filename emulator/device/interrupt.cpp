#include "interrupt.hpp"

#include <atomic>

namespace msa_ops::emulator {
namespace {

std::atomic<void (*)()> the_check{nullptr};

}  // namespace

void set_interrupt_check(void (*check)()) { the_check = check; }

void check_interrupt() {
  if (void (*const check)() = the_check) check();
}

}  // namespace msa_ops::emulator
