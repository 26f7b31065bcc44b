#include "code_object.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr std::uint16_t kMachineAmdGpu = 224;
constexpr std::uint32_t kMachineGfx950 = 0x4f;  // in the low byte of e_flags
constexpr std::uint32_t kNoteMetadata = 32;
constexpr std::size_t kDescriptorBytes = 64;
constexpr std::size_t kSymbolBytes = 24, kSectionBytes = 64;
// What no compiler makes more of; a file that says so is damaged.
constexpr std::size_t kLongestName = 16'384, kLongestKey = 256;
constexpr unsigned kDeepest = 16;                        // lists and maps of metadata in one another
constexpr std::uint32_t kMostArgumentBytes = 1U << 16;
constexpr std::uint32_t kMostScratch = 1U << 17;         // of a lane: 13 bits of 1 KB for a wave

// Names come to be parts of messages.
const std::string& readable(const std::string& name) {
  for (const char letter : name) {
    if (letter < ' ' || letter > '~') throw CodeObjectError("code object: a name that is no text");
  }
  return name;
}

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  template <typename T>
  T at(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, range(offset, sizeof(T)), sizeof(T));
    return value;
  }
  const std::uint8_t* range(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) throw CodeObjectError("code object: an offset is outside the file");
    return data_ + offset;
  }
  std::string text(std::uint64_t offset) const {
    std::string out;
    for (; at<char>(offset) != 0; ++offset) {
      if (out.size() == kLongestName) throw CodeObjectError("code object: a name of over 16,384 characters");
      out += at<char>(offset);
    }
    return readable(out);
  }
  std::size_t size() const { return size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

struct Section {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, size;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_size;
};

// The parts of MessagePack that kernel metadata is made of; everything else is skipped over.
class MessagePack {
 public:
  using Visitor = std::function<void(const std::string& path, const std::string& value)>;

  explicit MessagePack(Bytes bytes) : bytes_(bytes) {}

  // Calls of the visitor with the path of a value, e.g. "/amdhsa.kernels/0/.args/2/.offset".
  void visit(const std::string& path, const Visitor& visitor) {
    const auto tag = take<std::uint8_t>();
    if (tag < 0x80) return visitor(path, std::to_string(tag));
    if (tag < 0x90) return map(path, tag & 15, visitor);
    if (tag < 0xa0) return list(path, tag & 15, visitor);
    if (tag < 0xc0) return visitor(path, take_text(tag & 31));
    switch (tag) {
      case 0xc0: return visitor(path, "");
      case 0xc2: return visitor(path, "0");
      case 0xc3: return visitor(path, "1");
      case 0xc4: case 0xd9: return visitor(path, take_text(take<std::uint8_t>()));
      case 0xc5: case 0xda: return visitor(path, take_text(big(2)));
      case 0xc6: case 0xdb: return visitor(path, take_text(big(4)));
      case 0xca: position_ += 4; return visitor(path, "");
      case 0xcb: position_ += 8; return visitor(path, "");
      case 0xcc: case 0xd0: return visitor(path, std::to_string(big(1)));
      case 0xcd: case 0xd1: return visitor(path, std::to_string(big(2)));
      case 0xce: case 0xd2: return visitor(path, std::to_string(big(4)));
      case 0xcf: case 0xd3: return visitor(path, std::to_string(big(8)));
      case 0xdc: return list(path, big(2), visitor);
      case 0xdd: return list(path, big(4), visitor);
      case 0xde: return map(path, big(2), visitor);
      case 0xdf: return map(path, big(4), visitor);
      default: break;
    }
    if (tag >= 0xe0) return visitor(path, std::to_string(static_cast<std::int8_t>(tag)));
    throw CodeObjectError("code object: metadata holds a MessagePack tag " + std::to_string(tag));
  }

 private:
  template <typename T>
  T take() {
    const T value = bytes_.at<T>(position_);
    position_ += sizeof(T);
    return value;
  }
  std::uint64_t big(unsigned bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | take<std::uint8_t>();
    return value;
  }
  std::string take_text(std::uint64_t bytes) {
    const auto* start = bytes_.range(position_, bytes);
    position_ += bytes;
    return {reinterpret_cast<const char*>(start), static_cast<std::size_t>(bytes)};
  }
  void enter() {
    if (++depth_ > kDeepest) throw CodeObjectError("code object: metadata is nested too deeply");
  }
  void list(const std::string& path, std::uint64_t count, const Visitor& visitor) {
    enter();
    for (std::uint64_t i = 0; i < count; ++i) visit(path + "/" + std::to_string(i), visitor);
    --depth_;
  }
  void map(const std::string& path, std::uint64_t count, const Visitor& visitor) {
    enter();
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string key;
      visit("", [&](const std::string&, const std::string& text) { key = text; });
      if (key.size() > kLongestKey) throw CodeObjectError("code object: metadata has a key of over 256 characters");
      visit(path + "/" + key, visitor);
    }
    --depth_;
  }

  Bytes bytes_;
  std::uint64_t position_ = 0;
  unsigned depth_ = 0;
};

std::uint32_t number_of(const std::string& key, const std::string& value) {
  std::uint64_t number = 0;
  bool good = !value.empty() && value.size() <= 10;
  for (const char digit : value) {
    good = good && digit >= '0' && digit <= '9';
    number = number * 10 + static_cast<unsigned>(digit - '0');
  }
  if (!good || number > UINT32_MAX) throw CodeObjectError("code object: metadata: " + key + " is no number of 32 bits");
  return static_cast<std::uint32_t>(number);
}

struct KernelMetadata {
  std::vector<KernelArgument> arguments;
  std::uint32_t most_threads = 0;
};
using Metadata = std::map<std::string, KernelMetadata>;  // by the descriptor's symbol

Metadata read_metadata(const Bytes& note) {
  std::map<std::string, std::string> symbols;                             // of the kernel at "/amdhsa.kernels/N"
  std::map<std::string, std::map<std::size_t, KernelArgument>> arguments;
  std::map<std::string, std::uint32_t> most_threads;
  MessagePack(note).visit("", [&](const std::string& path, const std::string& value) {
    constexpr std::size_t kPrefix = sizeof("/amdhsa.kernels/") - 1;
    if (path.rfind("/amdhsa.kernels/", 0) != 0) return;
    const std::string kernel = path.substr(0, path.find('/', kPrefix));
    const std::string rest = path.substr(kernel.size());
    if (rest == "/.symbol") symbols[kernel] = value;
    if (rest == "/.max_flat_workgroup_size") most_threads[kernel] = number_of(rest, value);
    if (rest.rfind("/.args/", 0) != 0) return;
    const std::size_t end = rest.find('/', 7);
    if (end == std::string::npos) return;
    KernelArgument& argument = arguments[kernel][number_of("argument", rest.substr(7, end - 7))];
    const std::string key = rest.substr(end);
    if (key == "/.offset") argument.offset = number_of(key, value);
    if (key == "/.size") argument.bytes = number_of(key, value);
    if (key == "/.value_kind") argument.kind = readable(value);
  });
  Metadata made;
  for (const auto& [kernel, symbol] : symbols) {
    made[symbol].most_threads = most_threads[kernel];
    for (const auto& [index, argument] : arguments[kernel]) made[symbol].arguments.push_back(argument);
  }
  return made;
}

KernelDescriptor read_descriptor(const Bytes& file, std::uint64_t at) {
  KernelDescriptor made{};
  made.group_segment_bytes = file.at<std::uint32_t>(at);
  made.private_segment_bytes = file.at<std::uint32_t>(at + 4);
  made.kernarg_bytes = file.at<std::uint32_t>(at + 8);
  made.rsrc3 = file.at<std::uint32_t>(at + 44);
  made.rsrc1 = file.at<std::uint32_t>(at + 48);
  made.rsrc2 = file.at<std::uint32_t>(at + 52);
  made.properties = file.at<std::uint16_t>(at + 56);
  made.preload = file.at<std::uint16_t>(at + 58);
  return made;
}

// What a launch takes from the descriptor and the metadata without another look.
void check(const KernelImage& image) {
  const KernelDescriptor& d = image.descriptor;
  const auto wrong = [&](const std::string& what) {
    throw CodeObjectError("code object: kernel " + image.name + ": " + what);
  };
  if (d.private_segment_bytes > kMostScratch)
    wrong(std::to_string(d.private_segment_bytes) + " bytes of scratch memory a lane; accepted: up to 131072");
  if (d.kernarg_bytes > kMostArgumentBytes)
    wrong(std::to_string(d.kernarg_bytes) + " bytes of arguments; accepted: up to 65536");
  const std::uint32_t preloaded = d.preload & 0x7f, first = d.preload >> 7;
  if (preloaded > d.num_user_sgprs() || (preloaded != 0 && 4 * std::uint64_t{first + preloaded} > d.kernarg_bytes))
    wrong("it preloads " + std::to_string(preloaded) + " words of arguments from word " + std::to_string(first) +
          " on, of " + std::to_string(d.kernarg_bytes) + " bytes, to " + std::to_string(d.num_user_sgprs()) +
          " registers");
  for (const KernelArgument& argument : image.arguments) {
    if (std::uint64_t{argument.offset} + argument.bytes > d.kernarg_bytes)
      wrong("an argument of " + std::to_string(argument.bytes) + " bytes at " + std::to_string(argument.offset) +
            ", of " + std::to_string(d.kernarg_bytes) + " bytes of arguments");
  }
}

}  // namespace

CodeObject read_code_object(const std::uint8_t* data, std::size_t bytes) {
  const Bytes file(data, bytes);
  if (bytes < 64 || std::memcmp(data, "\x7f" "ELF\x02\x01", 6) != 0) {
    throw CodeObjectError("code object: not a 64-bit little-endian ELF file");
  }
  if (file.at<std::uint16_t>(18) != kMachineAmdGpu) throw CodeObjectError("code object: not for an AMD GPU");
  const auto flags = file.at<std::uint32_t>(48);
  if ((flags & 0xff) != kMachineGfx950) {
    throw CodeObjectError("code object: processor 0x" + [](unsigned v) {
      char text[8];
      std::snprintf(text, sizeof(text), "%x", v);
      return std::string(text);
    }(flags & 0xff) + "; only gfx950 (0x4f) is executed");
  }
  const auto table = file.at<std::uint64_t>(40);
  const auto entry_size = file.at<std::uint16_t>(58);
  const auto count = file.at<std::uint16_t>(60);
  if (count > 0 && entry_size < kSectionBytes) throw CodeObjectError("code object: sections are described too briefly");
  const bool relocatable = file.at<std::uint16_t>(16) == 1;
  std::vector<Section> sections;
  for (unsigned i = 0; i < count; ++i) sections.push_back(file.at<Section>(table + std::uint64_t{i} * entry_size));
  const auto section_at = [&](std::size_t index) -> const Section& {
    if (index >= sections.size()) throw CodeObjectError("code object: a section that is not there");
    return sections[index];
  };
  const auto names = file.at<std::uint16_t>(62);
  const auto name_of_section = [&](const Section& section) {
    return file.text(section_at(names).offset + section.name);
  };

  CodeObject made;
  unsigned text_index = 0;
  Metadata metadata;
  for (unsigned i = 0; i < count; ++i) {
    const Section& section = sections[i];
    if (name_of_section(section) == ".text") {
      const auto* start = file.range(section.offset, section.size);
      made.text.assign(start, start + section.size);
      made.text_address = section.address;
      text_index = i;
    }
    if (section.type == 7) {  // notes
      file.range(section.offset, section.size);
      for (std::uint64_t at = section.offset; metadata.empty() && at + 12 <= section.offset + section.size;) {
        const std::uint64_t name_bytes = (std::uint64_t{file.at<std::uint32_t>(at)} + 3) & ~std::uint64_t{3};
        const std::uint64_t note_bytes = file.at<std::uint32_t>(at + 4);
        if (file.at<std::uint32_t>(at + 8) == kNoteMetadata) {
          metadata = read_metadata({file.range(at + 12 + name_bytes, note_bytes), note_bytes});
        }
        at += 12 + name_bytes + ((note_bytes + 3) & ~std::uint64_t{3});
      }
    }
  }
  if (text_index == 0) throw CodeObjectError("code object: no .text section");

  struct Symbol {
    std::uint32_t section;
    std::uint64_t value, size;
    unsigned type;
  };
  std::map<std::string, Symbol> symbols;
  std::size_t num_symbols = 0;
  for (const Section& section : sections) {
    if (section.type != 2 && section.type != 11) continue;  // symbols, dynamic symbols
    file.range(section.offset, section.size);
    num_symbols += section.size / kSymbolBytes;
    if (num_symbols > bytes / kSymbolBytes) throw CodeObjectError("code object: tables of symbols overlap");
    for (std::uint64_t at = section.offset; at < section.offset + section.size; at += kSymbolBytes) {
      const std::string name = file.text(section_at(section.link).offset + file.at<std::uint32_t>(at));
      if (!name.empty()) {
        symbols[name] = {file.at<std::uint16_t>(at + 6), file.at<std::uint64_t>(at + 8),
                         file.at<std::uint64_t>(at + 16), file.at<std::uint8_t>(at + 4) & 15U};
      }
    }
  }
  for (const auto& [name, symbol] : symbols) {
    const std::uint64_t base = relocatable ? 0 : made.text_address;
    if (symbol.section == text_index && symbol.type == 2) {
      made.functions.push_back(
          {static_cast<std::uint32_t>(symbol.value - base), static_cast<std::uint32_t>(symbol.size)});
    }
    if (name.size() < 4 || name.compare(name.size() - 3, 3, ".kd") != 0 || symbol.section >= count) continue;
    const std::string kernel = name.substr(0, name.size() - 3);
    const auto function = symbols.find(kernel);
    if (function == symbols.end() || function->second.section != text_index) {
      throw CodeObjectError("code object: no code for the descriptor of kernel " + kernel);
    }
    const Section& home = section_at(symbol.section);
    const std::uint64_t at = home.offset + symbol.value - (relocatable ? 0 : home.address);
    file.range(at, kDescriptorBytes);
    KernelImage image;
    image.name = kernel;
    image.descriptor = read_descriptor(file, at);
    const std::uint64_t entry = function->second.value - base, size = function->second.size;
    if (entry > made.text.size() || size > made.text.size() - entry) {
      throw CodeObjectError("code object: kernel " + kernel + " is outside .text");
    }
    image.entry = static_cast<std::uint32_t>(entry);
    image.bytes = static_cast<std::uint32_t>(size);
    image.arguments = metadata[name].arguments;
    image.most_threads = metadata[name].most_threads;
    check(image);
    made.kernels.push_back(std::move(image));
  }
  if (made.kernels.empty()) throw CodeObjectError("code object: no kernel");
  return made;
}

}  // namespace msa_ops::emulator::gfx950
