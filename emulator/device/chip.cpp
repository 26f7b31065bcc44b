#include "chip.hpp"

#include <cstdlib>
#include <stdexcept>

namespace msa_ops::emulator {

const std::vector<Chip>& chips() {
  // Multiprocessors: H100/H200 SXM, B200, B300, and the announced number of Rubin.
  static const std::vector<Chip> table{
      {"sm_90a", 9, 0, 132, 232'448, 232'448, 233'472, 0},
      {"sm_100a", 10, 0, 148, 232'448, 232'448, 233'472, 512},
      {"sm_103a", 10, 3, 148, 232'448, 232'448, 233'472, 512},
      {"sm_107a", 10, 7, 224, 334'848, 232'448, 335'872, 576},
  };
  return table;
}

const Chip& chip_of(const std::string& name) {
  std::string names;
  for (const Chip& chip : chips()) {
    if (chip.name == name) return chip;
    names += (names.empty() ? "" : ", ") + chip.name;
  }
  throw std::invalid_argument("chip: '" + name + "'; accepted: " + names +
                              ", or the name of a chip that is one of them, such as H100 or B200");
}

Chip chip_of(const std::string& name, std::optional<unsigned> multiprocessors) {
  Chip chip = chip_of(name);
  if (!multiprocessors) return chip;
  if (*multiprocessors < 1 || *multiprocessors > 1024) {
    throw std::invalid_argument("multiprocessors: " + std::to_string(*multiprocessors) + "; accepted: 1 to 1024");
  }
  chip.multiprocessors = *multiprocessors;
  return chip;
}

bool Chip::runs(const std::string& target) const {
  if (target == name) return true;
  if (target.compare(0, 3, "sm_") != 0) return false;
  char* end = nullptr;
  const unsigned long number = std::strtoul(target.c_str() + 3, &end, 10);
  const std::string suffix = end;
  const unsigned own = major * 10 + minor;
  if (number == 0) return false;
  if (suffix.empty()) return number <= own;
  if (suffix == "f") return number / 10 == major && number <= own;
  return false;  // "a" of another chip
}

}  // namespace msa_ops::emulator
