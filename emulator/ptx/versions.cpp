#include "versions.hpp"

#include <cctype>
#include <cstdlib>
#include <map>
#include <utility>

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using Version = std::pair<unsigned, unsigned>;

// The last minor number of each major one, as ptxas 13.5 knows them.
const std::map<unsigned, unsigned>& last_minors() {
  static const std::map<unsigned, unsigned> table{{1, 5}, {2, 3}, {3, 2}, {4, 3}, {5, 0}, {6, 5}, {7, 8}, {8, 8}, {9, 5}};
  return table;
}

// First versions of the targets, as ptxas 13.5 has them, and for those that it no longer compiles as PTX's manual has.
const std::map<std::string, Version>& first_versions() {
  static const std::map<std::string, Version> table{
      {"sm_10", {1, 0}},  {"sm_11", {1, 0}},  {"sm_12", {1, 2}},   {"sm_13", {1, 2}},   {"sm_20", {2, 0}},   {"sm_30", {3, 0}},
      {"sm_32", {4, 0}},  {"sm_35", {3, 1}},  {"sm_37", {4, 1}},   {"sm_50", {4, 0}},   {"sm_52", {4, 1}},   {"sm_53", {4, 2}},
      {"sm_60", {5, 0}},  {"sm_61", {5, 0}},  {"sm_62", {5, 0}},   {"sm_70", {6, 0}},   {"sm_72", {6, 1}},   {"sm_75", {6, 3}},
      {"sm_80", {7, 0}},  {"sm_86", {7, 1}},  {"sm_87", {7, 4}},   {"sm_88", {9, 0}},   {"sm_89", {7, 8}},   {"sm_90", {7, 8}},
      {"sm_90a", {8, 0}}, {"sm_100", {8, 6}}, {"sm_100a", {8, 6}}, {"sm_100f", {8, 8}}, {"sm_101", {8, 6}},  {"sm_101a", {8, 6}},
      {"sm_101f", {8, 8}}, {"sm_103", {8, 8}}, {"sm_103a", {8, 8}}, {"sm_103f", {8, 8}}, {"sm_107", {9, 4}}, {"sm_107a", {9, 4}},
      {"sm_107f", {9, 4}}};
  return table;
}

std::string text(const Version& version) { return std::to_string(version.first) + "." + std::to_string(version.second); }

// {0, 0} for anything else.
Version number_of(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == text.size() || text.size() > 6) return {0, 0};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i != dot && std::isdigit(static_cast<unsigned char>(text[i])) == 0) return {0, 0};
  }
  return {static_cast<unsigned>(std::strtoul(std::string(text.substr(0, dot)).c_str(), nullptr, 10)),
          static_cast<unsigned>(std::strtoul(std::string(text.substr(dot + 1)).c_str(), nullptr, 10))};
}

}  // namespace

void check_version(std::string_view version, int line) {
  const Version number = number_of(version);
  if (number.first == 0) throw PtxError("`.version " + std::string(version) + "` is not a version", line);
  const auto& known = last_minors();
  const auto found = known.find(number.first);
  if (found == known.end() || number.second > found->second) {
    const Version last{known.rbegin()->first, known.rbegin()->second};
    throw PtxError("there is no `.version " + std::string(version) + "`; the newest one is " + text(last), line);
  }
}

void check_target(const std::string& target, std::string_view version, int line) {
  const auto found = first_versions().find(target);
  if (found == first_versions().end()) {
    char* end = nullptr;
    const unsigned long number = target.compare(0, 3, "sm_") == 0 ? std::strtoul(target.c_str() + 3, &end, 10) : 0;
    if (number > 107) throw Unsupported(".target " + target, line);
    throw PtxError("there is no `.target " + target + "`", line);
  }
  if (number_of(version) < found->second) {
    throw PtxError("`.version " + std::string(version) + "` does not have `.target " + target + "`, which is there from " +
                       text(found->second) + " on",
                   line);
  }
}

}  // namespace msa_ops::emulator::ptx
