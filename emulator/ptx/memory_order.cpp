#include "memory_order.hpp"

#include <initializer_list>

#include "error.hpp"

namespace msa_ops::emulator::ptx {

namespace {

bool has(const std::string& opcode, const char* word) {
  return (opcode + ".").find(std::string(".") + word + ".") != std::string::npos;
}

unsigned number_of(const std::string& opcode, std::initializer_list<const char*> words) {
  const std::string all = opcode + ".";
  unsigned found = 0;
  for (const char* word : words) {
    const std::string wanted = std::string(".") + word + ".";
    for (std::size_t at = all.find(wanted); at != std::string::npos; at = all.find(wanted, at + 1)) ++found;
  }
  return found;
}

}  // namespace

void check_order(const Statement& statement) {
  const std::string& opcode = statement.opcode;
  const auto begins = [&](const char* start) { return opcode.rfind(start, 0) == 0; };
  const auto fail = [&](const std::string& why) { throw PtxError("`" + opcode + "`: " + why, statement.line); };
  const bool plain = begins("ld.") || begins("st."), asynchronous = begins("st.async.") || begins("st.bulk.");
  const bool barrier = begins("mbarrier."), atomic = begins("atom.") || begins("red.");
  if (!plain && !barrier && !atomic && !begins("fence.") && !begins("cp.async.c") && !begins("multimem.")) return;
  const unsigned orders = number_of(opcode, {"acquire", "release", "acq_rel", "relaxed", "sc"});
  const unsigned kinds = number_of(opcode, {"volatile", "weak", "mmio", "nc"});
  const unsigned scopes = number_of(opcode, {"cta", "cluster", "gpu", "sys"});
  if (orders > 1) fail("more than one memory order");
  if (scopes > 1) fail("more than one scope");
  if (kinds > 1) fail("more than one of .volatile, .weak, .mmio and .nc");
  if (number_of(opcode, {"ca", "cg", "cs", "lu", "cv", "wb", "wt"}) > 1) fail("more than one cache operation");
  if ((plain && !asynchronous) || barrier) {
    if (orders == 1 && scopes == 0) fail("a memory order wants a scope");
    if (orders == 0 && scopes == 1) fail("a scope wants a memory order");
    if (orders == 1 && kinds == 1 && !has(opcode, "mmio")) fail("a memory order beside .volatile, .weak or .nc");
  }
  if (begins("ld.") && (has(opcode, "release") || has(opcode, "acq_rel") || has(opcode, "sc"))) fail("not a load's order");
  if (begins("st.") && (has(opcode, "acquire") || has(opcode, "acq_rel") || has(opcode, "sc"))) fail("not a store's order");
  if (has(opcode, "nc") && !(begins("ld.") && has(opcode, "global"))) fail(".nc is of ld.global");
}

Order order_of(const std::string& opcode) {
  if (has(opcode, "acq_rel") || has(opcode, "sc")) return Order::kAcquireRelease;
  if (has(opcode, "acquire")) return Order::kAcquire;
  if (has(opcode, "release")) return Order::kRelease;
  if (has(opcode, "relaxed") || has(opcode, "volatile") || has(opcode, "mmio")) return Order::kRelaxed;
  return Order::kDefault;
}

bool is_read_only(const std::string& opcode) { return opcode.compare(0, 3, "ld.") == 0 && has(opcode, "nc"); }

Reach scope_of(const std::string& opcode) {
  if (has(opcode, "sys") || has(opcode, "volatile") || has(opcode, "mmio")) return Reach::kSystem;
  if (has(opcode, "gpu") || has(opcode, "gl")) return Reach::kDevice;
  if (has(opcode, "cluster")) return Reach::kCluster;
  if (has(opcode, "cta")) return Reach::kBlock;
  return Reach::kDevice;
}

}  // namespace msa_ops::emulator::ptx
