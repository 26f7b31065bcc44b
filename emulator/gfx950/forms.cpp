#include "forms.hpp"

#include <map>

namespace msa_ops::emulator::gfx950 {

unsigned dwords_of(Type type) {
  switch (type) {
    case Type::kNone: return 0;
    case Type::kB64: case Type::kF64: case Type::kPkF32: case Type::kMask: return 2;
    case Type::kB96: return 3;
    case Type::kB128: return 4;
    case Type::kB192: return 6;
    case Type::kB256: return 8;
    case Type::kB512: return 16;
    case Type::kB1024: return 32;
    default: return 1;
  }
}

const std::vector<Form>& all_forms() {
  static const std::vector<Form> forms = [] {
    std::vector<Form> made;
    for (auto* const group : {scalar_forms, scalar_memory_forms, vector_integer_forms, vector_float_forms,
                              vector_half_forms, compare_forms, convert_forms, cross_lane_forms, lds_forms,
                              memory_forms, matrix_forms}) {
      for (const Form& form : group()) made.push_back(form);
    }
    return made;
  }();
  return forms;
}

const Form* find_form(Encoding encoding, unsigned number) {
  static const std::map<std::pair<Encoding, unsigned>, const Form*> index = [] {
    std::map<std::pair<Encoding, unsigned>, const Form*> made;
    for (const Form& form : all_forms()) made.emplace(std::pair(form.encoding, unsigned{form.number}), &form);
    return made;
  }();
  const auto find = [&](Encoding in, unsigned value) -> const Form* {
    const auto found = index.find({in, value});
    return found != index.end() ? found->second : nullptr;
  };
  if (encoding == Encoding::kVop3) {
    if (number < 0x100) return find(Encoding::kVopc, number);
    if (const Form* form = find(Encoding::kVop3, number)) return form;
    if (number < 0x140) return find(Encoding::kVop2, number - 0x100);
    if (number < 0x1c0) return find(Encoding::kVop1, number - 0x140);
    return nullptr;
  }
  return find(encoding, number);
}

}  // namespace msa_ops::emulator::gfx950
