#include "muster/pt2/assumptions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

#include <fmt/ranges.h>

namespace muster::pt2 {
namespace {

// A file may come from a stranger: no text may make the parsers go deeper.
constexpr int kDeepest = 100;
constexpr int64_t kLargestFactor = int64_t{1} << 20;

// The next words of a text. Spaces between them do not count.
class Words {
 public:
  explicit Words(std::string_view text) : left_(text) {}

  bool at_end() {
    skip();
    return left_.empty();
  }
  bool take(std::string_view word) {
    skip();
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  // A word of letters, which must not be the beginning of a longer one.
  bool take_name(std::string_view word) {
    skip();
    if (name() != word) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  // "torch.sym_max"; empty: something else comes next.
  std::string_view take_name() {
    skip();
    const auto found = name();
    left_.remove_prefix(found.size());
    return found;
  }
  std::optional<int64_t> take_integer() {
    skip();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc()) return std::nullopt;
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    return value;
  }
  // 3 or 0.5.
  std::optional<Number> take_number() {
    skip();
    const size_t whole = std::min(left_.find_first_not_of("0123456789"), left_.size());
    if (whole == 0) return std::nullopt;
    if (whole == left_.size() || (left_[whole] != '.' && left_[whole] != 'e')) {
      const auto value = take_integer();
      return value ? std::optional<Number>(*value) : std::nullopt;
    }
    double value = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc()) return std::nullopt;
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    return value;
  }
  // What is between two quotes.
  std::optional<std::string> take_text() {
    if (!take("'")) return std::nullopt;
    const size_t end = left_.find('\'');
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(left_.substr(0, end));
    left_.remove_prefix(end + 1);
    return text;
  }

 private:
  void skip() { left_.remove_prefix(std::min(left_.find_first_not_of(' '), left_.size())); }
  std::string_view name() const {
    const auto in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '.';
    };
    if (left_.empty() || (left_[0] >= '0' && left_[0] <= '9')) return {};
    const auto end = std::ranges::find_if_not(left_, in_name);
    return left_.substr(0, static_cast<size_t>(end - left_.begin()));
  }

  std::string_view left_;
};

Result<Number> logical_and(std::span<const Number> all) {
  return Number(as_double(all[0]) != 0 && as_double(all[1]) != 0);
}
Result<Number> logical_or(std::span<const Number> all) {
  return Number(as_double(all[0]) != 0 || as_double(all[1]) != 0);
}

struct Binary {
  std::string_view sign;
  int level;  // operators of a higher one bind more strongly
  std::string_view function;
};
constexpr int kNot = 2;  // `not` is between `and` and comparisons
constexpr int kComparison = 2;
constexpr int kHighest = 7;
// A sign that another one begins with comes after it.
constexpr std::array<Binary, 16> kBinary = {{
    {"==", kComparison, "_operator.eq"},
    {"!=", kComparison, "_operator.ne"},
    {"<=", kComparison, "_operator.le"},
    {">=", kComparison, "_operator.ge"},
    {"|", 3, "_operator.or_"},
    {"&", 4, "_operator.and_"},
    {"<<", 5, "_operator.lshift"},
    {">>", 5, "_operator.rshift"},
    {"<", kComparison, "_operator.lt"},
    {">", kComparison, "_operator.gt"},
    {"+", 6, "_operator.add"},
    {"-", 6, "_operator.sub"},
    {"//", kHighest, "_operator.floordiv"},
    {"/", kHighest, "_operator.truediv"},
    {"%", kHighest, "_operator.mod"},
    {"*", kHighest, "_operator.mul"},
}};

// Names of Python that arithmetic in a graph does not have.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kFunctions = {{
    {"max", "torch.sym_max"},
    {"min", "torch.sym_min"},
    {"Max", "torch.sym_max"},
    {"Min", "torch.sym_min"},
    {"float", "torch.sym_float"},
    {"int", "torch.sym_int"},
}};

}  // namespace

// By recursive descent. Each function is false where the text cannot be understood.
class SizeExpression::Parser {
 public:
  Parser(std::string_view text, std::span<const std::string> inputs)
      : words_(text), inputs_(inputs) {}

  std::optional<SizeExpression> parse() {
    if (!binary(0) || !words_.at_end()) return std::nullopt;
    return std::move(expression_);
  }

 private:
  bool call(NumberFunction function, size_t count) {
    expression_.items_.emplace_back(Call{function, count});
    return true;
  }
  bool call(std::string_view name, size_t count) {
    const auto function = number_function(name);
    return function && call(*function, count);
  }

  // Operators of this level and higher ones.
  bool binary(int level) {
    if (level > kHighest) return unary();
    if (++depth_ > kDeepest * kHighest) return false;
    const bool done = level == 0   ? words("or", logical_or, level)
                      : level == 1 ? words("and", logical_and, level)
                                   : signs(level);
    --depth_;
    return done;
  }

  bool words(std::string_view word, NumberFunction function, int level) {
    if (!binary(level + 1)) return false;
    while (words_.take_name(word)) {
      if (!binary(level + 1) || !call(function, 2)) return false;
    }
    return true;
  }

  bool signs(int level) {
    if (level == kNot && words_.take_name("not")) {
      return binary(kNot) && call("torch.sym_not", 1);
    }
    if (!binary(level + 1)) return false;
    for (int count = 0;; ++count) {
      const auto sign = take_sign(level);
      if (!sign) return true;
      // a < b < c is not (a < b) < c.
      if (level == kComparison && count > 0) return false;
      if (!binary(level + 1) || !call(sign->function, 2)) return false;
    }
  }

  std::optional<Binary> take_sign(int level) {
    for (const Binary& sign : kBinary) {
      Words before = words_;
      if (!words_.take(sign.sign)) continue;
      if (sign.level == level && !(sign.sign == "*" && words_.take("*"))) return sign;
      words_ = before;
      return std::nullopt;
    }
    return std::nullopt;
  }

  bool unary() {
    if (++depth_ > kDeepest * kHighest) return false;
    bool done = false;
    if (words_.take("-")) {
      done = unary() && call("_operator.neg", 1);
    } else if (words_.take("+")) {
      done = unary();
    } else {
      done = primary() && (!words_.take("**") || (unary() && call("_operator.pow", 2)));
    }
    --depth_;
    return done;
  }

  bool primary() {
    if (words_.take("(")) return binary(0) && words_.take(")");
    if (const auto number = words_.take_number()) {
      expression_.items_.emplace_back(*number);
      return true;
    }
    const std::string_view name = words_.take_name();
    if (name.empty()) return false;
    if (name == "L") return size();
    if (name == "True" || name == "False") {
      expression_.items_.emplace_back(Number(name == "True"));
      return true;
    }
    return function(name);
  }

  bool function(std::string_view name) {
    if (!words_.take("(")) return false;
    size_t count = 0;
    do {
      if (!binary(0)) return false;
      ++count;
    } while (words_.take(","));
    const auto* known =
        std::ranges::find(kFunctions, name, &std::pair<std::string_view, std::string_view>::first);
    return words_.take(")") && call(known != kFunctions.end() ? known->second : name, count);
  }

  // L['x'].size()[0], and for the input x_0 of a list L['x'][0].size()[0].
  bool size() {
    std::string name;
    while (words_.take("[")) {
      auto part = words_.take_text();
      if (!part) {
        const auto index = words_.take_integer();
        if (!index) return false;
        part = std::to_string(*index);
      }
      if (!words_.take("]")) return false;
      name += (name.empty() ? "" : "_") + *part;
    }
    if (!words_.take(".size()[")) return false;
    const auto dimension = words_.take_integer();
    const auto input = std::ranges::find(inputs_, name);
    if (!words_.take("]") || !dimension || *dimension < 0 || input == inputs_.end()) return false;
    expression_.items_.emplace_back(
        Size{static_cast<size_t>(input - inputs_.begin()), static_cast<size_t>(*dimension)});
    return true;
  }

  Words words_;
  std::span<const std::string> inputs_;
  SizeExpression expression_;
  int depth_ = 0;
};

std::optional<SizeExpression> SizeExpression::parse(std::string_view text,
                                                    std::span<const std::string> inputs) {
  return Parser(text, inputs).parse();
}

Result<Number> SizeExpression::value(std::span<const Shape> inputs) const {
  std::vector<Number> stack;
  for (const auto& item : items_) {
    if (const auto* number = std::get_if<Number>(&item)) {
      stack.push_back(*number);
    } else if (const auto* size = std::get_if<Size>(&item)) {
      if (size->input >= inputs.size() || size->dimension >= inputs[size->input].size()) {
        return Error(ErrorKind::kJob, "an input has too few dimensions");
      }
      stack.emplace_back(inputs[size->input][size->dimension]);
    } else {
      const auto& [function, count] = std::get<Call>(item);
      MUSTER_TRY(auto result, function(std::span(stack).last(count)));
      stack.resize(stack.size() - count);
      stack.push_back(result);
    }
  }
  return stack.back();
}

namespace {

// Nothing: another form, or too large.
std::optional<LinearSize> linear(Words& words, int depth) {
  if (depth > kDeepest) return std::nullopt;
  const auto small = [](const LinearSize& size) {
    return std::abs(size.factor) <= kLargestFactor && std::abs(size.offset) <= kLargestFactor;
  };
  const std::string_view kind = words.take_name();
  if (!words.take("(")) return std::nullopt;
  if (kind == "Integer") {
    const auto value = words.take_integer();
    if (!value || *value < -kLargestFactor || *value > kLargestFactor) return std::nullopt;
    if (!words.take(")")) return std::nullopt;
    return LinearSize{0, *value, ""};
  }
  if (kind == "Symbol") {
    auto name = words.take_text();
    while (words.take(",")) {  // what is known of it: positive=True
      if (words.take_name().empty() || !words.take("=") || words.take_name().empty()) {
        return std::nullopt;
      }
    }
    if (!name || !words.take(")")) return std::nullopt;
    return LinearSize{1, 0, *std::move(name)};
  }
  if (kind != "Add" && kind != "Mul") return std::nullopt;
  std::optional<LinearSize> all;
  do {
    auto one = linear(words, depth + 1);
    if (!one) return std::nullopt;
    if (!all) {
      all = std::move(one);
      continue;
    }
    if (kind == "Add") {
      if (!all->symbol.empty() && !one->symbol.empty() && all->symbol != one->symbol) {
        return std::nullopt;
      }
      all->factor += one->factor;
      all->offset += one->offset;
    } else {
      if (!all->symbol.empty() && !one->symbol.empty()) return std::nullopt;
      const int64_t factor =
          one->symbol.empty() ? all->factor * one->offset : one->factor * all->offset;
      all->offset *= one->offset;
      all->factor = factor;
    }
    if (all->symbol.empty()) all->symbol = one->symbol;
    if (!small(*all)) return std::nullopt;
  } while (words.take(","));
  if (!words.take(")")) return std::nullopt;
  return all;
}

std::string range_text(const Assumptions::OpenSize& open) {
  const auto at = [&](int64_t value) { return open.size.factor * value + open.size.offset; };
  const auto& [lowest, highest] = open.range;
  std::string text = lowest <= 0 ? "any number" : fmt::format("{} or more", at(lowest));
  if (highest < SymbolRange::kMost) {
    text = lowest <= 0 ? fmt::format("at most {}", at(highest))
                       : fmt::format("{} to {}", at(lowest), at(highest));
  }
  return text;
}

constexpr std::string_view kRemedy =
    "change the batch, the number of lanes or eval.batch, or export it for other sizes";

Error out_of_range(const Assumptions& all, const Assumptions::OpenSize& open,
                   const std::string& name, int64_t size) {
  const std::string steps =
      open.size.factor > 1 ? fmt::format(" (in steps of {})", open.size.factor) : "";
  if (open.dimension == 0) {
    return Error(ErrorKind::kJob, "'{}' was exported for {} samples at a time{}, not for {}: {}",
                 name, range_text(open), steps, size, kRemedy);
  }
  return Error(ErrorKind::kJob, "'{}' was exported for {} in dimension {} of '{}'{}, not for {}",
               name, range_text(open), open.dimension, all.inputs[open.input], steps, size);
}

}  // namespace

std::optional<LinearSize> parse_size(std::string_view text) {
  Words words(text);
  auto size = linear(words, 0);
  if (!size || !words.at_end() || size->symbol.empty() || size->factor <= 0) return std::nullopt;
  return size;
}

Status check_shapes(const Assumptions& assumptions, const std::string& name,
                    std::span<const Shape> shapes) {
  std::map<std::string_view, int64_t> symbols;
  for (const auto& open : assumptions.sizes) {
    if (open.input >= shapes.size() || open.dimension >= shapes[open.input].size()) continue;
    const int64_t size = shapes[open.input][open.dimension];
    const int64_t left = size - open.size.offset;
    const int64_t value = left / open.size.factor;
    if (left % open.size.factor != 0 || value < open.range.lowest || value > open.range.highest) {
      return out_of_range(assumptions, open, name, size);
    }
    const auto [known, is_new] = symbols.emplace(open.size.symbol, value);
    if (!is_new && known->second != value) {
      return Error(ErrorKind::kJob,
                   "'{}' was exported for inputs whose sizes follow from one another ({}), and "
                   "dimension {} of '{}', {}, does not",
                   name, open.size.symbol, open.dimension, assumptions.inputs[open.input], size);
    }
  }
  for (const auto& [text, condition] : assumptions.guards) {
    if (!condition) {
      return Error(ErrorKind::kJob,
                   "'{}' is right only if `{}`, as its torch.export found, and Muster cannot "
                   "evaluate this; export it with torch.export.Dim, or without branches that "
                   "depend on sizes",
                   name, text);
    }
    const auto value = condition->value(shapes);
    if (value.ok() && as_double(*value) != 0) continue;
    std::vector<std::string> sizes;
    for (const Shape& shape : shapes) sizes.push_back(fmt::format("[{}]", fmt::join(shape, ", ")));
    return Error(ErrorKind::kJob,
                 "'{}' is right only if `{}`, as its torch.export found, and inputs of sizes {} "
                 "are not so: {}",
                 name, text, fmt::join(sizes, ", "), kRemedy);
  }
  return {};
}

}  // namespace muster::pt2
