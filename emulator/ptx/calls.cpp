#include "calls.hpp"

#include <cstdio>
#include <cstring>
#include <string>

#include "addresses.hpp"
#include "lanes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// Bytes of memory at generic addresses, as a lane of the kernel would read them.
class Reader {
 public:
  Reader(PtxWarp& warp, const Instruction& instruction, unsigned lane)
      : warp_(warp), instruction_(instruction), lane_(lane) {}

  template <typename T>
  T at(std::uint64_t address) {
    T value;
    std::memcpy(&value,
                access<Use::kRead>(warp_, instruction_, address, sizeof(T), MemorySpace::kGeneric, lane_), sizeof(T));
    return value;
  }
  std::string text(std::uint64_t address) {
    std::string made;
    for (char c = at<char>(address); c != '\0'; c = at<char>(++address)) made += c;
    return made;
  }

 private:
  PtxWarp& warp_;
  const Instruction& instruction_;
  unsigned lane_;
};

template <typename T>
std::string shown(const std::string& specification, T value) {
  char made[512];
  std::snprintf(made, sizeof(made), specification.c_str(), value);
  return made;
}

// One conversion of a format, whose argument is the next one of `arguments`, each at a multiple of its size.
std::string converted(Reader& reader, std::string specification, std::uint64_t& arguments) {
  const char kind = specification.back();
  const bool wide = specification.find_first_of("lzjt") != std::string::npos;
  const auto next = [&](auto value) {
    arguments = (arguments + sizeof(value) - 1) / sizeof(value) * sizeof(value);
    value = reader.at<decltype(value)>(arguments);
    arguments += sizeof(value);
    return value;
  };
  if (std::strchr("eEfFgGaA", kind) != nullptr) return shown(specification, next(double{}));
  if (kind == 's') return shown(specification, reader.text(next(std::uint64_t{})).c_str());
  if (kind == 'p') return shown(specification, reinterpret_cast<void*>(next(std::uintptr_t{})));
  if (kind == 'c') return shown(specification, static_cast<int>(next(std::int32_t{})));
  const bool is_signed = kind == 'd' || kind == 'i';
  if (is_signed && wide) return shown(specification, static_cast<long long>(next(std::int64_t{})));
  if (is_signed) return shown(specification, static_cast<int>(next(std::int32_t{})));
  if (wide) return shown(specification, static_cast<unsigned long long>(next(std::uint64_t{})));
  return shown(specification, static_cast<unsigned>(next(std::uint32_t{})));
}

// What printf makes of a format and its arguments, and how many there were.
std::string formatted(Reader& reader, const std::string& format, std::uint64_t arguments, std::uint32_t& count) {
  std::string made;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      made += format[at];
      continue;
    }
    const std::size_t end = format.find_first_of("%diouxXeEfFgGaAcsp", at + 1);
    if (end == std::string::npos) break;
    if (format[end] == '%') {
      made += '%';
    } else {
      std::string specification = format.substr(at, end + 1 - at);
      const std::size_t star = specification.find('*');
      if (star != std::string::npos) {  // a width that is an argument, too
        arguments = (arguments + 3) / 4 * 4;
        specification.replace(star, 1, std::to_string(reader.at<std::int32_t>(arguments)));
        arguments += 4;
      }
      made += converted(reader, specification, arguments);
      ++count;
    }
    at = end;
  }
  return made;
}

void print(PtxWarp& warp, const Instruction& instruction, const Call& call, unsigned lane) {
  Reader reader(warp, instruction, lane);
  std::uint64_t places[2];
  for (unsigned i = 0; i < 2; ++i) {
    places[i] = reader.at<std::uint64_t>(kLocalWindow + call.arguments[i].to.local);
  }
  std::uint32_t count = 0;
  const std::string text =
      formatted(reader, reader.text(places[0]), places[1], count);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  const CallCopy& result = call.results.at(0);
  std::memcpy(warp.local(result.from.local, 4, true, static_cast<int>(lane)), &count, 4);
}

[[noreturn]] void fail_assertion(PtxWarp& warp, const Instruction& instruction, const Call& call, unsigned lane) {
  Reader reader(warp, instruction, lane);
  const auto argument = [&](unsigned i) { return kLocalWindow + call.arguments.at(i).to.local; };
  throw Violation{FaultKind::kAssertion,
                  reader.text(reader.at<std::uint64_t>(argument(1))) + ":" +
                      std::to_string(reader.at<std::uint32_t>(argument(2))) + ": assertion `" +
                      reader.text(reader.at<std::uint64_t>(argument(0))) + "` failed",
                  static_cast<int>(lane)};
}

}  // namespace

bool knows_external(const std::string& name) { return name == "vprintf" || name == "__assertfail"; }

void call_external(PtxWarp& warp, const Instruction& instruction, const Call& call, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    if (call.name == "vprintf") print(warp, instruction, call, lane);
    else fail_assertion(warp, instruction, call, lane);
  });
}

}  // namespace msa_ops::emulator::ptx
