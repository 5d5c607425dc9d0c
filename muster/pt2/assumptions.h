// What torch.export took for granted about the sizes of the inputs.
//
// It runs forward once, and the graph holds the branches of Python that were taken then. The file
// lists the sizes for which these are right: a range for each size that is not fixed
// (range_constraints), and conditions in Python on sizes (guards_code, by newer PyTorch only). With
// other sizes the graph would compute something else than the model, without an error.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "muster/base/result.h"
#include "muster/pt2/numbers.h"

namespace muster::pt2 {

using Shape = std::vector<int64_t>;

// A number that follows from the sizes of the inputs.
class SizeExpression {
 public:
  // Of Python, as the exporter writes it: "(L['x'].size()[0] % 4) == 0". `inputs` are the names of
  // the inputs. Nothing: it has something else in it than sizes, numbers and arithmetic.
  static std::optional<SizeExpression> parse(std::string_view text,
                                             std::span<const std::string> inputs);
  // Errors (kJob): of the arithmetic, or an input lacks a dimension.
  Result<Number> value(std::span<const Shape> inputs) const;

 private:
  class Parser;
  struct Size {
    size_t input = 0;
    size_t dimension = 0;
  };
  // Replaces the last `count` values by its result.
  struct Call {
    NumberFunction function = nullptr;
    size_t count = 0;
  };
  std::vector<std::variant<Number, Size, Call>> items_;  // in the order of evaluation
};

// A size as factor * symbol + offset, with factor > 0.
struct LinearSize {
  int64_t factor = 1;
  int64_t offset = 0;
  std::string symbol;
};
// Of the file's "Mul(Integer(4), Symbol('s1', positive=True, integer=True))". Nothing: it has
// another form.
std::optional<LinearSize> parse_size(std::string_view text);

// The values that a symbol may have.
struct SymbolRange {
  static constexpr int64_t kMost = int64_t{1} << 40;
  int64_t lowest = 0;
  int64_t highest = kMost;  // kMost: any
};

struct Assumptions {
  // A size that is not fixed.
  struct OpenSize {
    size_t input = 0;
    size_t dimension = 0;
    LinearSize size;
    SymbolRange range;
  };
  struct Guard {
    std::string text;
    std::optional<SizeExpression> condition;  // nothing: it cannot be evaluated
  };
  std::vector<std::string> inputs;  // names of the model's inputs
  std::vector<OpenSize> sizes;
  std::vector<Guard> guards;
};

// Whether they hold for inputs of these shapes, the first dimension being that of the samples.
// Errors (kJob): one of them does not, or cannot be evaluated; they name it, and call the file
// `name`.
Status check_shapes(const Assumptions& assumptions, const std::string& name,
                    std::span<const Shape> shapes);

}  // namespace muster::pt2
