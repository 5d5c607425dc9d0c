#include "muster/pt2/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace muster::pt2 {
namespace {

using Arguments = std::span<const Number>;

bool is_double(const Number& number) { return std::holds_alternative<double>(number); }

int64_t as_int(const Number& number) {
  if (const auto* value = std::get_if<int64_t>(&number)) return *value;
  return std::get<bool>(number) ? 1 : 0;
}

bool as_bool(const Number& number) { return as_double(number) != 0; }

Error bad(std::string_view what) { return Error(ErrorKind::kJob, "arithmetic on sizes: {}", what); }
Error wrong_count() { return bad("a wrong number of arguments"); }
Error too_large() { return bad("a result that does not fit 64 bits"); }

// f(a, b) for whole numbers, which may fail, or g(a, b) if one of them is not whole.
template <typename Ints, typename Doubles>
Result<Number> binary(Arguments arguments, const Ints& ints, const Doubles& doubles) {
  if (arguments.size() != 2) return wrong_count();
  if (is_double(arguments[0]) || is_double(arguments[1])) {
    return Number(doubles(as_double(arguments[0]), as_double(arguments[1])));
  }
  return ints(as_int(arguments[0]), as_int(arguments[1]));
}

Result<Number> add(Arguments arguments) {
  return binary(
      arguments,
      [](int64_t a, int64_t b) -> Result<Number> {
        int64_t sum = 0;
        if (__builtin_add_overflow(a, b, &sum)) return too_large();
        return Number(sum);
      },
      [](double a, double b) { return a + b; });
}

Result<Number> sub(Arguments arguments) {
  return binary(
      arguments,
      [](int64_t a, int64_t b) -> Result<Number> {
        int64_t difference = 0;
        if (__builtin_sub_overflow(a, b, &difference)) return too_large();
        return Number(difference);
      },
      [](double a, double b) { return a - b; });
}

Result<Number> mul(Arguments arguments) {
  return binary(
      arguments,
      [](int64_t a, int64_t b) -> Result<Number> {
        int64_t product = 0;
        if (__builtin_mul_overflow(a, b, &product)) return too_large();
        return Number(product);
      },
      [](double a, double b) { return a * b; });
}

// Both round towards minus infinity.
Result<Number> floordiv(Arguments arguments) {
  return binary(
      arguments,
      [](int64_t a, int64_t b) -> Result<Number> {
        if (b == 0) return bad("a division by zero");
        if (b == -1) return sub(std::array<Number, 2>{int64_t{0}, a});
        return Number(a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
      },
      [](double a, double b) { return std::floor(a / b); });
}

Result<Number> mod(Arguments arguments) {
  return binary(
      arguments,
      [](int64_t a, int64_t b) -> Result<Number> {
        if (b == 0) return bad("a division by zero");
        if (b == -1) return Number(int64_t{0});
        const int64_t rest = a % b;
        return Number(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
      },
      [](double a, double b) { return a - std::floor(a / b) * b; });
}

Result<Number> truediv(Arguments arguments) {
  if (arguments.size() != 2) return wrong_count();
  if (as_double(arguments[1]) == 0) return bad("a division by zero");
  return Number(as_double(arguments[0]) / as_double(arguments[1]));
}

Result<Number> pow(Arguments arguments) {
  return binary(
      arguments,
      [](int64_t base, int64_t exponent) -> Result<Number> {
        if (exponent < 0) {
          return Number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
        }
        int64_t power = 1;
        if (base == 0 || base == 1 || base == -1) {
          if (exponent == 0) return Number(int64_t{1});
          return Number(base == -1 && exponent % 2 == 0 ? int64_t{1} : base);
        }
        for (int64_t i = 0; i < exponent; ++i) {
          if (__builtin_mul_overflow(power, base, &power)) return too_large();
        }
        return Number(power);
      },
      [](double a, double b) { return std::pow(a, b); });
}

template <typename Compare>
Result<Number> compare(Arguments arguments, const Compare& holds) {
  if (arguments.size() != 2) return wrong_count();
  if (is_double(arguments[0]) || is_double(arguments[1])) {
    return Number(static_cast<bool>(holds(as_double(arguments[0]), as_double(arguments[1]))));
  }
  return Number(static_cast<bool>(holds(as_int(arguments[0]), as_int(arguments[1]))));
}

Result<Number> eq(Arguments all) {
  return compare(all, [](auto a, auto b) { return a == b; });
}
Result<Number> ne(Arguments all) {
  return compare(all, [](auto a, auto b) { return a != b; });
}
Result<Number> lt(Arguments all) {
  return compare(all, [](auto a, auto b) { return a < b; });
}
Result<Number> le(Arguments all) {
  return compare(all, [](auto a, auto b) { return a <= b; });
}
Result<Number> gt(Arguments all) {
  return compare(all, [](auto a, auto b) { return a > b; });
}
Result<Number> ge(Arguments all) {
  return compare(all, [](auto a, auto b) { return a >= b; });
}

Result<Number> neg(Arguments all) {
  if (all.size() != 1) return wrong_count();
  if (is_double(all[0])) return Number(-as_double(all[0]));
  return sub(std::array<Number, 2>{int64_t{0}, all[0]});
}
Result<Number> pos(Arguments all) {
  if (all.size() != 1) return wrong_count();
  return all[0];
}
// Towards zero.
Result<Number> trunc(Arguments all) {
  if (all.size() != 1) return wrong_count();
  if (!is_double(all[0])) return Number(as_int(all[0]));
  const double whole = std::trunc(as_double(all[0]));
  if (!(whole >= -0x1p63 && whole < 0x1p63)) return too_large();
  return Number(static_cast<int64_t>(whole));
}
Result<Number> to_float(Arguments all) {
  if (all.size() != 1) return wrong_count();
  return Number(as_double(all[0]));
}
Result<Number> sqrt(Arguments all) {
  if (all.size() != 1) return wrong_count();
  return Number(std::sqrt(as_double(all[0])));
}
Result<Number> logical_not(Arguments all) {
  if (all.size() != 1) return wrong_count();
  return Number(!as_bool(all[0]));
}
Result<Number> either(Arguments all) {
  if (all.size() != 3) return wrong_count();
  return as_bool(all[0]) ? all[1] : all[2];
}
Result<Number> largest(Arguments all) {
  if (all.size() != 2) return wrong_count();
  return as_double(all[0]) < as_double(all[1]) ? all[1] : all[0];
}
Result<Number> smallest(Arguments all) {
  if (all.size() != 2) return wrong_count();
  return as_double(all[1]) < as_double(all[0]) ? all[1] : all[0];
}
// f(a, b) of whole numbers only; of truth values it gives one.
template <typename Ints>
Result<Number> bitwise(Arguments all, const Ints& ints) {
  if (all.size() != 2) return wrong_count();
  if (is_double(all[0]) || is_double(all[1])) return bad("bits of a number that is not whole");
  const int64_t result = ints(as_int(all[0]), as_int(all[1]));
  if (std::holds_alternative<bool>(all[0]) && std::holds_alternative<bool>(all[1])) {
    return Number(result != 0);
  }
  return Number(result);
}
Result<Number> bit_and(Arguments all) {
  return bitwise(all, [](int64_t a, int64_t b) { return a & b; });
}
Result<Number> bit_or(Arguments all) {
  return bitwise(all, [](int64_t a, int64_t b) { return a | b; });
}

// The value and the count of a shift.
Result<std::pair<int64_t, int64_t>> shift_of(Arguments all) {
  if (all.size() != 2) return wrong_count();
  if (is_double(all[0]) || is_double(all[1])) return bad("a shift of a number that is not whole");
  const int64_t count = as_int(all[1]);
  if (count < 0) return bad("a shift by a negative number");
  return std::pair(as_int(all[0]), count);
}
constexpr int64_t kMostShift = 62;  // 1 << 63 does not fit
Result<Number> lshift(Arguments all) {
  MUSTER_TRY(const auto shift, shift_of(all));
  const auto [value, count] = shift;
  if (value == 0) return Number(int64_t{0});
  if (count > kMostShift) return too_large();
  return mul(std::array<Number, 2>{value, int64_t{1} << count});
}
// Towards minus infinity.
Result<Number> rshift(Arguments all) {
  MUSTER_TRY(const auto shift, shift_of(all));
  const auto [value, count] = shift;
  return Number(value >> std::min(count, int64_t{63}));
}

struct Named {
  std::string_view target;
  NumberFunction function;
};

constexpr std::array<Named, 28> kFunctions = {{
    {"_operator.add", add},         {"_operator.sub", sub},
    {"_operator.mul", mul},         {"_operator.floordiv", floordiv},
    {"_operator.truediv", truediv}, {"_operator.mod", mod},
    {"_operator.pow", pow},         {"_operator.neg", neg},
    {"_operator.pos", pos},         {"_operator.eq", eq},
    {"_operator.ne", ne},           {"_operator.lt", lt},
    {"_operator.le", le},           {"_operator.gt", gt},
    {"_operator.ge", ge},           {"_operator.and_", bit_and},
    {"_operator.or_", bit_or},      {"_operator.lshift", lshift},
    {"_operator.rshift", rshift},   {"math.trunc", trunc},
    {"torch.sym_int", trunc},       {"torch.sym_float", to_float},
    {"torch.sym_max", largest},     {"torch.sym_min", smallest},
    {"torch.sym_not", logical_not}, {"torch.sym_ite", either},
    {"torch.sym_sqrt", sqrt},       {"torch._sym_sqrt", sqrt},
}};

}  // namespace

double as_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

std::optional<NumberFunction> number_function(std::string_view target) {
  const auto* found = std::ranges::find(kFunctions, target, &Named::target);
  if (found == kFunctions.end()) return std::nullopt;
  return found->function;
}

}  // namespace muster::pt2
