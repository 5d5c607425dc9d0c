// Records with named fields (a tf.Example, the parts of a WebDataset sample, a line of JSON), and
// how they become samples: which fields are input and label, and what is done to images and
// numbers. Shared by the formats of records; each only finds its fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/node.h"
#include "muster/data/blocks/id_lists.h"
#include "muster/data/blocks/token_lists.h"
#include "muster/data/scaling.h"
#include "muster/data/schema.h"

namespace muster::data {

// What a field holds: bytes (an encoded image, raw pixels), numbers, or something of no use (text).
struct Value {
  enum class Kind : uint8_t { kMissing, kBytes, kNumbers, kOther };
  Kind kind = Kind::kMissing;
  std::span<const std::byte> bytes;
  std::vector<double> numbers;
};

class Record {
 public:
  virtual ~Record() = default;
  // values[i] is the field names[i], or kMissing. Errors (kData): the record is damaged.
  virtual Status get(std::span<const std::string> names, std::span<Value> values) const = 0;
  // For the error that a field is missing.
  virtual std::vector<std::string> names() const = 0;
};

// What a format calls its fields if the job does not say.
struct FieldDefaults {
  std::vector<std::string> input;  // empty: `input` must be given
  std::string label = "label";
  std::string field = "field";  // what errors call a field: "feature", "part", "key"
  bool lists = false;           // fields may be lists of ids, or of tokens
};

// Immutable; safe for concurrent use.
class Recipe {
 public:
  // From the job's options, and these entries of its `args`: input, shape, layout, size, resize,
  // channels, first_label; or, if the format has lists, those of IdLists and first_label, or those
  // of TokenLists. Errors: kJob.
  static Result<Recipe> make(const config::SourceOptions& options, config::ArgReader& args,
                             FieldDefaults defaults);

  // The schema that this record, the first one, shows.
  Result<Schema> schema_of(const Record& record) const;
  // Writes the sample that the record holds. Errors (kData): a field is missing, damaged, or does
  // not fit the schema.
  Status read(const Record& record, const Schema& schema, std::byte* input,
              std::byte* target) const;

  // The fields that are read: those of the input, then the label, if there is one: tokens have
  // none, nor have samples with `label: none`.
  const std::vector<std::string>& names() const { return names_; }

  // For formats that have found the image and label by other means.
  Status put_image(std::span<const std::byte> file, const Schema& schema, float* to) const;
  Status put_pixels(std::span<const std::byte> raw, const Schema& schema, float* to) const;
  // As many as the schema's input has.
  Status put_numbers(std::span<const float> numbers, const Schema& schema, float* to) const;
  Status put_class(double label, std::byte* target) const;
  // Whether images become all alike.
  bool has_size() const { return height_ > 0; }
  bool has_labels() const { return has_labels_; }
  // The target of a sample without a label.
  void put_no_label(std::byte* target) const;
  // The shape that an encoded image has after `size`, if that is set, or its own.
  Result<std::vector<int64_t>> image_shape(std::span<const std::byte> file) const;
  // A schema with this input and the target that the options name. `pixels`: as in Schema. Error
  // (kJob): `mean` or `deviation` does not fit the shape.
  Result<Schema> schema_with(std::vector<int64_t> input_shape, bool pixels) const;
  // What samples follow from besides the records and the schema. If they are images: also what the
  // decoder of this machine makes of some.
  void add_to(const Schema& schema, Hasher& hasher) const;

 private:
  Status read_args(config::ArgReader& args);
  Status gather(const Record& record, std::vector<Value>& values) const;
  Status put_number(double value, size_t channel, float* to) const;
  Status put_label(const Value& value, std::byte* target) const;

  FieldDefaults defaults_;
  std::optional<IdLists> ids_;  // what the input is, if it is that
  std::optional<TokenLists> tokens_;
  std::vector<std::string> names_;
  std::vector<int64_t> shape_;  // of the input; empty: as the first record shows
  bool pixels_last_ = false;    // raw pixels lie as height, width, channels
  size_t height_ = 0;           // of images; 0: as they are
  size_t width_ = 0;
  size_t shorter_ = 0;  // 0: as covers both
  size_t channels_ = 3;
  double first_label_ = 0;
  bool has_labels_ = true;
  bool has_classes_ = true;
  int64_t classes_ = 0;
  Scaling scaling_;
  PixelValues pixels_;
};

}  // namespace muster::data
