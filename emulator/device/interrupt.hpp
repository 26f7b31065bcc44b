// How work that takes long is ended from outside.
#pragma once

namespace msa_ops::emulator {

// What `check_interrupt` calls: throws if the work should end. Set once, before any launch.
void set_interrupt_check(void (*check)());

// Called now and then by the thread that started a launch.
void check_interrupt();

}  // namespace msa_ops::emulator
