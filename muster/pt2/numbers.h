// Arithmetic on sizes: the nodes of an exported model that compute with numbers, not tensors, such
// as samples * 32 for a view. As Python computes it.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "muster/base/result.h"

namespace muster::pt2 {

using Number = std::variant<int64_t, double, bool>;

double as_double(const Number& number);

// One of Python's: "_operator.mul", "torch.sym_float", "math.trunc".
using NumberFunction = Result<Number> (*)(std::span<const Number> arguments);

// Nothing: there is none of this name. What it returns fails (kJob) for a wrong number of
// arguments, a division by zero, a shift by a negative number, bits of a double, and results beyond
// 64 bits.
std::optional<NumberFunction> number_function(std::string_view target);

}  // namespace muster::pt2
