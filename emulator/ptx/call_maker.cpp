#include "call_maker.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "error.hpp"

namespace msa_ops::emulator::ptx {

// call (results), function, (arguments)    or    call (results), pointer, (arguments), prototype or targets
void CallMaker::add(const Statement& statement) {
  std::size_t at = 0;
  const std::vector<Term> none;
  const auto list = [&]() -> const std::vector<Term>& {
    const bool has = at < statement.operands.size() && statement.operands[at].kind == Term::Kind::kList;
    return has ? statement.operands[at++].terms : none;
  };
  const std::vector<Term>& results = list();
  if (at == statement.operands.size()) fail("no function");
  const Term& callee = statement.operands[at++];
  const std::vector<Term>& arguments = list();
  CallSite site;
  std::vector<std::string> names;
  if (callee.kind == Term::Kind::kRegister) {
    maker_.push(callee, 8, false, false);
    site.pointer = made().operands.back();
    names.assign(layout_.pointed_at().begin(), layout_.pointed_at().end());
    ++at;  // what kind of function it is, of which the functions themselves tell
  } else if (callee.kind == Term::Kind::kName && layout_.numbers().count(callee.name) != 0) {
    names.push_back(callee.name);
  } else {
    fail("`" + callee.name + "` is no function");
  }
  if (at < statement.operands.size()) fail("too many operands");
  for (const std::string& name : names) {
    const std::size_t number = layout_.numbers().at(name);
    const Part& target = layout_.parts()[number];
    const Function& function = *target.function;
    if (function.arguments.size() != arguments.size() || function.results.size() != results.size()) {
      if (callee.kind == Term::Kind::kRegister) continue;
      fail("`" + name + "` has " + std::to_string(function.results.size()) + " results and " +
           std::to_string(function.arguments.size()) + " arguments");
    }
    Call call;
    call.name = name;
    call.number = number;
    call.first = target.first;
    call.end = target.end;
    call.is_external = !function.is_defined;
    call.first_register = target.first_register;
    call.end_register = target.end_register;
    call.first_local = target.first_local;
    call.end_local = target.end_local;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Formal& formal = function.arguments[i];
      call.arguments.push_back({actual(arguments[i], formal, false), own(formal, target), formal.bytes});
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Formal& formal = function.results[i];
      call.results.push_back({own(formal, target), actual(results[i], formal, true), formal.bytes});
    }
    site.targets.push_back(std::move(call));
  }
  made().target = static_cast<std::uint32_t>(prepared_.call_sites.size());
  prepared_.call_sites.push_back(std::move(site));
}

CallCopy::Place CallMaker::own(const Formal& formal, const Part& of) const {
  if (!formal.in_register) return {{}, of.local.at(formal.name)};
  Operand operand;
  operand.width = static_cast<std::uint8_t>(formal.bytes);
  operand.present = true;
  operand.index = of.first_register + formal.index;
  operand.offset = layout_.place(operand.index);
  return {operand, 0};
}

CallCopy::Place CallMaker::actual(const Term& term, const Formal& formal, bool is_result) {
  if (term.kind == Term::Kind::kName) {
    if (const auto found = maker_.part().local.find(term.name); found != maker_.part().local.end()) {
      const auto& variables = maker_.part().body->local;
      const auto variable = std::find_if(variables.begin(), variables.end(),
                                         [&](const Variable& one) { return one.name == term.name; });
      if (variable->bytes != formal.bytes) fail("a parameter of another size");
      return {{}, found->second};
    }
  }
  if (formal.bytes != 2 && formal.bytes != 4 && formal.bytes != 8) fail("an operand that is no parameter");
  const std::size_t sources = made().sources.size(), destinations = made().destinations.size();
  maker_.push(term, static_cast<unsigned>(formal.bytes), false, is_result);
  made().sources.resize(sources);
  made().destinations.resize(destinations);
  return {made().operands.back(), 0};
}

}  // namespace msa_ops::emulator::ptx
