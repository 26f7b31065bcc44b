#include "variable_reader.hpp"

#include <cstring>
#include <unordered_map>

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::uint64_t kMostVariableBytes = std::uint64_t{1} << 30;  // of all variables of a text
constexpr unsigned kMostVectorBytes = 16;
constexpr std::uint64_t kMostNames = 1'000'000;

bool is_integer_type(const std::string& type) { return type[1] == 'u' || type[1] == 's'; }
bool is_float_type(const std::string& type) { return type[1] == 'f'; }

[[noreturn]] void mismatch(const std::string& type, int line) {
  throw PtxError("an initial value that is no " + type, line);
}

}  // namespace

unsigned width_of_type(std::string_view type, int line) {
  if (type == ".pred") return kPredicateWidth;
  static const std::unordered_map<std::string_view, unsigned> widths{
      {".b8", 1},    {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2}, {".s16", 2}, {".f16", 2}, {".f16x2", 4},
      {".b32", 4},   {".u32", 4}, {".s32", 4}, {".f32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}, {".b128", 16}};
  const auto found = widths.find(type);
  if (found != widths.end()) return found->second;
  if (type == ".texref" || type == ".surfref" || type == ".samplerref") throw Unsupported(std::string(type), line);
  throw PtxError("`" + std::string(type) + "` is no type of a variable or a register", line);
}

Variable VariableReader::kind(const std::string& space) {
  const int line = in_.peek().line;
  Variable made{"", 0, 0};
  type_ = {};
  std::string type = in_.word("a type");
  while (type == ".align" || type == ".attribute") {
    if (type == ".align") {
      made.alignment = in_.alignment();
    } else {  // memory of the host and the device is one here
      in_.expect('(');
      const std::string attribute = in_.word("an attribute");
      if (attribute == ".unified") throw Unsupported(".attribute(.unified)", line);
      if (attribute != ".managed") throw PtxError("`" + attribute + "` is no attribute of a variable", line);
      if (space != ".global") throw PtxError("`.managed` of a variable in " + space + "; accepted: .global", line);
      in_.expect(')');
    }
    type = in_.word("a type");
  }
  if (type == ".v2" || type == ".v4") {
    type_.vector = type == ".v2" ? 2 : 4;
    type = in_.word("a type");
  }
  type_.name = type;
  type_.width = width_of_type(type, line);
  if (type_.width == kPredicateWidth) throw PtxError("`.pred` of a variable in " + space + "; accepted: .reg", line);
  if (type_.vector * type_.width > kMostVectorBytes) throw PtxError("a vector of more than 16 bytes", line);
  if (made.alignment == 0) made.alignment = type_.vector * type_.width;
  return made;
}

std::vector<Variable> VariableReader::list(bool is_external) {
  const std::string space = in_.word("a state space");
  const Variable kind = this->kind(space);
  std::vector<Variable> all;
  do {
    Variable made = kind;
    const int line = in_.peek().line;
    made.name = in_.word("a name");
    if (in_.accept('<')) {  // name0, name1, ...
      const std::uint64_t names = in_.integer();
      in_.expect('>');
      if (names > kMostNames) throw PtxError("more variables than any text has", line);
      made.bytes = type_.vector * type_.width;
      count(names, type_.vector * type_.width, line);
      for (std::uint64_t i = 0; i < names; ++i) {
        all.push_back(made);
        all.back().name += std::to_string(i);
      }
      continue;
    }
    if (in_.peek().is('[')) made.element_bytes = type_.width;
    made.bytes = arrays();
    if (in_.accept('=')) initialize(made, space, is_external);
    if (made.bytes == 0 && !is_external) throw PtxError("the size of `" + made.name + "` is open", line);
    all.push_back(std::move(made));
  } while (in_.accept(','));
  in_.expect(';');
  return all;
}

Variable VariableReader::parameter() {
  const std::string space = in_.word("`.param`");
  const int line = in_.peek().line;
  Variable made = kind(space);
  if (type_.vector > 1) throw PtxError("a vector in .param", line);
  made.name = in_.word("a name");
  made.bytes = in_.peek().is('[') ? array(type_.width) : type_.width;
  if (made.bytes == 0) throw PtxError("the size of `" + made.name + "` is open", line);
  return made;
}

void VariableReader::count(std::uint64_t elements, unsigned width, int line) {
  if (elements > kMostVariableBytes / width || (all_bytes_ += elements * width) > kMostVariableBytes) {
    throw PtxError("more than " + std::to_string(kMostVariableBytes) + " bytes of variables", line);
  }
}

std::uint64_t VariableReader::elements() {
  in_.expect('[');
  std::uint64_t number = 0;
  if (!in_.peek().is(']')) {
    const Token& token = in_.peek();
    if (token.kind != Token::Kind::kNumber && token.text != "WARP_SZ") in_.fail("a number of elements");
    if (!in_.peek(1).is(']')) in_.next(), in_.fail("`]`");  // no expression
    number = in_.integer_of(in_.constant());
  }
  in_.expect(']');
  return number;
}

std::uint64_t VariableReader::array(unsigned width) {
  const int line = in_.peek().line;
  const std::uint64_t number = elements();
  count(number, width, line);
  return number * width;
}

std::uint64_t VariableReader::arrays() {
  const int line = in_.peek().line;
  levels_.clear();
  while (in_.peek().is('[')) {
    levels_.push_back(elements());
    if (levels_.back() == 0 && levels_.size() > 1) throw PtxError("only the first size of an array may be open", line);
  }
  if (type_.vector > 1) levels_.push_back(type_.vector);
  step_ = type_.width;
  for (std::size_t i = levels_.size(); i-- > 0;) {
    if (levels_[i] > kMostVariableBytes / step_) count(levels_[i], static_cast<unsigned>(step_), line);
    levels_[i] *= step_;
    if (i > 0) step_ = levels_[i];
  }
  const std::uint64_t bytes = levels_.empty() ? type_.width : levels_[0];
  count(bytes, 1, line);
  return bytes;
}

// = 3 or = {1, 2, 3}
void VariableReader::initialize(Variable& variable, const std::string& space, bool is_external) {
  const int line = in_.peek().line;
  if (is_external) throw PtxError("an initial value of `" + variable.name + "`, which is external", line);
  if (space != ".global" && space != ".const") {
    throw PtxError("an initial value of `" + variable.name + "` in " + space + "; accepted: .global, .const", line);
  }
  if (type_.name == ".f16" || type_.name == ".f16x2") throw PtxError("an initial value of type " + type_.name, line);
  values(variable, levels_.size());
  const std::uint64_t given = variable.values.size();
  if (variable.bytes == 0) {
    variable.bytes = (given + step_ - 1) / step_ * step_;
    count(variable.bytes, 1, line);
  }
}

// A value, or a list of as many levels as are left.
void VariableReader::values(Variable& variable, std::size_t depth) {
  if (depth == 0) return value(variable);
  const int line = in_.peek().line;
  if (!in_.accept('{')) throw PtxError("initial values of an array or a vector without `{`", line);
  const std::size_t before = variable.values.size();
  if (!in_.accept('}')) {
    do values(variable, depth - 1);
    while (in_.accept(','));
    in_.expect('}');
  }
  const std::uint64_t given = variable.values.size() - before;
  const bool is_vector = depth == 1 && type_.vector > 1;
  if (is_vector && given != type_.vector * type_.width) {
    throw PtxError("initial values of a vector; accepted: " + std::to_string(type_.vector), line);
  }
  if (const std::uint64_t most = levels_[levels_.size() - depth]; most != 0 && given > most) {
    throw PtxError("more initial values than `" + variable.name + "` has elements", line);
  }
}

void VariableReader::value(Variable& variable) {
  const bool is_masked = in_.peek().kind == Token::Kind::kNumber && in_.peek(1).is('(');
  if (is_masked || (in_.peek().kind == Token::Kind::kWord && !in_.constant_begins())) address(variable);
  else number(variable);
  if (variable.values.size() > kMostVariableBytes) throw PtxError("too many initial values", in_.peek().line);
}

void VariableReader::number(Variable& variable) {
  const int line = in_.peek().line;
  if (!in_.constant_begins()) mismatch(type_.name, line);
  const Constant value = in_.constant();
  if (value.is_integer() ? is_float_type(type_.name) : is_integer_type(type_.name)) mismatch(type_.name, line);
  std::uint64_t bits = value.bits;
  if (value.kind == Constant::Kind::kDouble && type_.width == 4) {
    double wide = 0;
    std::memcpy(&wide, &bits, sizeof(wide));
    const auto narrow = static_cast<float>(wide);
    std::uint32_t word = 0;
    std::memcpy(&word, &narrow, sizeof(word));
    bits = word;
  }
  for (unsigned i = 0; i < type_.width; ++i) {
    variable.values.push_back(i < sizeof(bits) ? static_cast<unsigned char>(bits >> (8 * i)) : 0);
  }
}

// name, name+4, generic(name), generic(name)+4, and one byte of it: 0xff00(name), 0xff00(name+4), 0xff00(generic(name))
void VariableReader::address(Variable& variable) {
  const int line = in_.peek().line;
  AddressValue made;
  made.at = variable.values.size();
  made.bytes = static_cast<std::uint8_t>(type_.width);
  made.line = line;
  const bool is_masked = in_.peek().kind == Token::Kind::kNumber;
  if (is_masked) {
    const std::uint64_t mask = in_.integer_of(in_.constant());
    while (made.shift < 64 && std::uint64_t{0xff} << made.shift != mask) made.shift += 8;
    if (made.shift == 64) throw PtxError("a mask of an initial value; accepted: 0xff, 0xff00, ..., 0xff00000000000000", line);
    made.is_byte = true;
    in_.expect('(');
  }
  made.name = in_.word("a variable");
  made.may_be_function = true;
  if (made.name == "generic" && in_.accept('(')) {
    made.name = in_.word("a variable");
    made.may_be_function = false;
    in_.expect(')');
  }
  if (in_.peek().is('+')) {
    made.addend = in_.distance();
    made.may_be_function = false;
  }
  if (is_masked) in_.expect(')');
  // ptxas 13.5 takes one of four bytes, but writes eight.
  if (type_.name == ".u32" && !is_masked) throw Unsupported("an address as an initial value of four bytes", line);
  const bool fits = type_.name == ".u64" || (is_masked && (type_.name == ".u8" || type_.name == ".u32"));
  if (!fits) throw PtxError("an address as an initial value of type " + type_.name + "; accepted: .u64", line);
  variable.addresses.push_back(std::move(made));
  variable.values.resize(variable.values.size() + type_.width);
}

}  // namespace msa_ops::emulator::ptx
