// What the samples of a data set look like: all that a model needs to know about the data.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace muster::data {

enum class DType { kFloat32, kInt64 };

inline size_t dtype_size(DType dtype) { return dtype == DType::kFloat32 ? 4 : 8; }

struct Schema {
  DType input = DType::kFloat32;
  std::vector<int64_t> input_shape;  // of one sample: {1, 28, 28}, {64}
  DType target = DType::kInt64;
  std::vector<int64_t> target_shape;  // of one sample: {} for a class, {64} for next tokens
  // Class targets: how many. Token inputs: the vocabulary, which is also the number of classes of
  // the next token. 0 for real-valued targets.
  int64_t classes = 0;
  // Text: what token i stands for, as UTF-8. Empty otherwise, and also for text read as bytes,
  // where token i is byte i.
  std::vector<std::string> vocabulary;
  // Records of numbers and ids (int64 inputs): the first so many of the input are numbers, in units
  // of 2^-16, and the others ids; -1: there is none.
  int64_t numbers = 0;
  bool has_ids = false;
  bool ids_are_a_bag = false;  // the same id means the same in every column; else columns differ
  // The ids are followed by as many values, one for each id: what its row is multiplied by, as
  // value_bits() writes it; 0 where there is no id. Without values, each id has the value 1.
  bool has_values = false;
  // What a raw zero (a black pixel) has become in the input, of all channels or of each: what
  // augmentation fills gaps with.
  std::vector<float> padding = {0};
  // Inputs are bytes, scaled (scaling.h) as the source's options say.
  bool pixels = false;

  static size_t count(const std::vector<int64_t>& shape) {
    return static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  }
  // Records of ids: for how many a sample has room.
  int64_t id_columns() const {
    if (!has_ids || input_shape.empty()) return 0;
    return (input_shape[0] - numbers) / (has_values ? 2 : 1);
  }
  size_t input_elements() const { return count(input_shape); }
  size_t target_elements() const { return count(target_shape); }
  size_t input_bytes() const { return input_elements() * dtype_size(input); }
  size_t target_bytes() const { return target_elements() * dtype_size(target); }
};

// How a record, which is int64, has the value of an id: the bits of a double that is the float32.
inline int64_t value_bits(float value) { return std::bit_cast<int64_t>(double{value}); }

}  // namespace muster::data
