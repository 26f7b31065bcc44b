#include "approximate.hpp"

#include <cmath>

#include "numbers.hpp"

namespace msa_ops::emulator::ptx {
namespace {

float finish(double value) { return canonical(flush(static_cast<float>(value))); }

constexpr double kTurn = 6.283185307179586476925286766559;

}  // namespace

// Each gives the function's value, rounded to nearest: PTX bounds the errors of these functions and leaves the bits open.

float unit_rcp(float a) { return finish(1.0 / flush(a)); }
float unit_rsqrt(float a) { return finish(1.0 / std::sqrt(double{flush(a)})); }
float unit_sqrt(float a) { return finish(std::sqrt(double{flush(a)})); }
float unit_lg2(float a) { return finish(std::log2(double{flush(a)})); }
float unit_ex2(float a) { return finish(std::exp2(double{flush(a)})); }
float unit_sin(float turns) { return finish(std::sin(double{flush(turns)} * kTurn)); }
float unit_cos(float turns) { return finish(std::cos(double{flush(turns)} * kTurn)); }
float unit_tanh(float a) { return canonical(static_cast<float>(std::tanh(double{a}))); }

}  // namespace msa_ops::emulator::ptx
