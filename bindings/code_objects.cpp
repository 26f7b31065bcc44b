#include "code_objects.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

#include "hip_runtime.hpp"

namespace msa_ops {

// Generated from the code objects that the build was given; may be empty.
extern const std::vector<CodeObject> kCodeObjects;

const std::vector<CodeObject>& code_objects() { return kCodeObjects; }

int find_code_object(const std::string& name) {
  static const auto* positions = [] {
    auto* made = new std::unordered_map<std::string, int>();
    for (std::size_t i = 0; i < kCodeObjects.size(); ++i) (*made)[kCodeObjects[i].name] = static_cast<int>(i);
    return made;
  }();
  const auto place = positions->find(name);
  if (place == positions->end()) throw std::out_of_range("this build holds no code object " + name);
  return place->second;
}

std::vector<std::uint8_t> kernel_arguments(const CodeObject& object, const std::vector<std::int64_t>& values) {
  if (values.size() != object.parameters.size()) {
    throw std::invalid_argument("kernel " + std::string(object.name) + " takes " +
                                std::to_string(object.parameters.size()) + " arguments; " +
                                std::to_string(values.size()) + " given");
  }
  std::size_t bytes = 0;
  for (const auto& parameter : object.parameters) {
    bytes = std::max<std::size_t>(bytes, parameter.offset + parameter.size);
  }
  std::vector<std::uint8_t> segment((bytes + 7) / 8 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& parameter = object.parameters[i];
    if (parameter.size < 8) {
      const int bits = static_cast<int>(parameter.size) * 8;
      if (values[i] < -(std::int64_t{1} << (bits - 1)) || values[i] >= std::int64_t{1} << bits) {
        throw std::invalid_argument("kernel " + std::string(object.name) + ": argument " + std::to_string(i) + " is " +
                                    std::to_string(values[i]) + "; it has " + std::to_string(bits) + " bits");
      }
    }
    std::memcpy(segment.data() + parameter.offset, &values[i], std::min<std::size_t>(parameter.size, 8));
  }
  return segment;
}

AmdLaunch prepare_code_object(int position, unsigned num_workgroups, const std::vector<std::int64_t>& values) {
  if (position < 0 || position >= static_cast<int>(kCodeObjects.size())) {
    throw std::out_of_range("no code object at position " + std::to_string(position));
  }
  const CodeObject& object = kCodeObjects[position];
  // HSA counts the work-items of a launch in 32 bits.
  if (num_workgroups == 0 || std::uint64_t{num_workgroups} * object.threads > UINT32_MAX) {
    throw std::invalid_argument("kernel " + std::string(object.name) + ": " + std::to_string(num_workgroups) +
                                " workgroups of " + std::to_string(object.threads) +
                                "; accepted: 1 to 4294967295 work-items");
  }
  return AmdLaunch{object.code,           object.code_bytes,       object.kernel, {num_workgroups, 1, 1},
                   {object.threads, 1, 1}, 0, kernel_arguments(object, values), 0, nullptr};
}

void launch_code_object(int position, int device, std::uintptr_t stream, unsigned num_workgroups,
                        const std::vector<std::int64_t>& values) {
  AmdLaunch launch = prepare_code_object(position, num_workgroups, values);
  launch.device = device;
  launch.stream = reinterpret_cast<void*>(stream);
  HipRuntime::instance().launch(launch);
}

}  // namespace msa_ops
