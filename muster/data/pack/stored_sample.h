// How packed samples are stored: all alike, and so that reading them gives the same bits again.
//
// Inputs that are pixels (Schema::pixels) are stored as bytes, a quarter of what they are in
// memory, and scaled by the same `mean` and `deviation` when they are read. Other numbers are
// stored as the floats that they are, already scaled. A window of tokens is stored with the token
// after it, from which the targets follow. Lists of ids have room for as many as a sample can have;
// what is written to files ends with the last id (StoredIds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/scaling.h"
#include "muster/data/schema.h"

namespace muster::data {

// A stored sample is its input, then its target, without gaps. Inline: the plugin for Parquet files
// uses it, and finds no functions of the program.
struct SampleForm {
  enum class Input : uint8_t {
    kNumbers,        // float32
    kPixels,         // bytes
    kTokens,         // int32, one more than the input has; there is no target
    kIds,            // int64; -1 behind the last one
    kIdsWithValues,  // the same; then a float32 for each, also for -1
  };
  Input input = Input::kNumbers;
  std::vector<int64_t> input_shape;  // of one sample, as in its schema
  bool has_classes = true;           // the target is an int64; else a float32

  bool has_ids() const { return input == Input::kIds || input == Input::kIdsWithValues; }
  size_t input_elements() const { return Schema::count(input_shape); }
  // Of lists of ids: how many a sample can have.
  size_t id_columns() const { return input_elements() / (input == Input::kIdsWithValues ? 2 : 1); }
  size_t input_bytes() const {
    switch (input) {
      case Input::kNumbers:
        return input_elements() * sizeof(float);
      case Input::kPixels:
        return input_elements();
      case Input::kTokens:
        return (input_elements() + 1) * sizeof(int32_t);
      case Input::kIds:
        return id_columns() * sizeof(int64_t);
      case Input::kIdsWithValues:
        return id_columns() * (sizeof(int64_t) + sizeof(float));
    }
    return 0;
  }
  size_t target_bytes() const {
    if (input == Input::kTokens) return 0;
    return has_classes ? sizeof(int64_t) : sizeof(float);
  }
  size_t bytes() const { return input_bytes() + target_bytes(); }
};

// The ids of one stored sample, and their values if it has any.
class StoredIds {
 public:
  // `input` is that of a stored sample of this form, and must outlive this.
  StoredIds(std::span<const std::byte> input, const SampleForm& form)
      : ids_(input.first(form.id_columns() * sizeof(int64_t))) {
    while (count_ < form.id_columns() && id(count_) >= 0) ++count_;
    if (form.input == SampleForm::Input::kIdsWithValues) {
      values_ = input.subspan(ids_.size(), count_ * sizeof(float));
    }
  }
  size_t count() const { return count_; }
  int64_t id(size_t i) const {
    int64_t value = 0;
    std::memcpy(&value, ids_.data() + i * sizeof(value), sizeof(value));
    return value;
  }
  // float32, `count()` of them; empty if the form has none.
  std::span<const std::byte> values() const { return values_; }

 private:
  std::span<const std::byte> ids_;
  std::span<const std::byte> values_;
  size_t count_ = 0;
};

// From samples as a Dataset gives them to stored ones. A plain value; safe for concurrent use.
class SampleCoder {
 public:
  // `options` are those that the data set was opened with. Errors (kJob): samples of this kind
  // cannot be packed.
  static Result<SampleCoder> make(const Schema& schema, const config::SourceOptions& options);

  const SampleForm& form() const { return form_; }
  // Writes form().bytes() bytes. Error (kData): the sample is not one of the form.
  Status encode(const std::byte* input, const std::byte* target, std::byte* to) const;

 private:
  Status encode_pixels(const std::byte* input, std::byte* to) const;
  Status encode_tokens(const std::byte* input, const std::byte* target, std::byte* to) const;
  Status encode_ids(const std::byte* input, std::byte* to) const;

  SampleForm form_;
  Scaling scaling_;
  PixelValues values_;
};

}  // namespace muster::data
