// The formats that come with Muster, and what they share. Inside this module only: programs open
// data through the Registry (dataset.h). A format of files has two entrances: one takes the options
// of a job, the other readers, so that tests and fuzzers can feed it bytes from memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/node.h"
#include "muster/data/byte_reader.h"
#include "muster/data/dataset.h"
#include "muster/data/plan.h"

namespace muster::data {

// Images and labels as the MNIST family keeps them: two IDX files of unsigned bytes. Inputs become
// (x / 255 - mean) / deviation in float32: {1, H, W}, or {C, H, W} for files of four dimensions,
// or {D} for files of two.
Result<std::unique_ptr<Dataset>> open_idx(const config::SourceOptions& options);
Result<std::unique_ptr<Dataset>> read_idx(ByteReader images, ByteReader labels,
                                          const config::SourceOptions& options);

// Numbers in columns, one sample per line: the label's column is the target, the others are the
// input, (x - mean) / deviation in float32, shape {columns - 1}. Target: a class (int64, {}) or a
// value (float32, {1}). RFC 4180 as it is met in practice: quotes, quoted line ends, LF or CRLF, a
// byte order mark, empty lines. A cell that is missing or not a finite number is refused.
Result<std::unique_ptr<Dataset>> open_csv(const config::SourceOptions& options);
Result<std::unique_ptr<Dataset>> read_csv(ByteReader reader, const config::SourceOptions& options);

// Text for language models: sample i is the tokens [i, i + context) and its target the tokens
// [i + 1, i + 1 + context), both int64. Tokens are characters (UTF-8 code points; the vocabulary is
// those of the whole file in order, so that its parts agree) or bytes. `part` cuts the tokens, so
// parts do not share any.
Result<std::unique_ptr<Dataset>> open_text(const config::SourceOptions& options);
Result<std::unique_ptr<Dataset>> read_text(ByteReader reader, const config::SourceOptions& options);

// Records of ids, one sample per line: "label id id:1 ...", as LIBSVM and its relatives write them.
// Target: 1 for the label 1 or +1, 0 for 0 or -1. Input: the ids in the order of the line, int64,
// then -1 up to `args.features`, or to the longest line. `#` begins a comment; empty lines are
// skipped. With `args.values` an id may have any value ("id:0.5"), and the ids are followed by
// their values (schema.h); without it, values other than 1 are refused.
Result<std::unique_ptr<Dataset>> open_libsvm(const config::SourceOptions& options);
Result<std::unique_ptr<Dataset>> read_libsvm(ByteReader reader,
                                             const config::SourceOptions& options);

// Synthetic click data, computed and not read: ctr.h.
Result<std::unique_ptr<Dataset>> open_ctr(const config::SourceOptions& options);

// The samples that `part` and `limit` leave of `size`; at least one, or an error that names `file`.
Result<Slice> select_samples(const config::SourceOptions& options, uint64_t size,
                             std::string_view file);
// Writes the target of a sample that has none: -1 for a class, NaN for a value.
void put_no_label(bool has_classes, std::byte* target);
// A sample with more ids than this is taken for a mistake: a batch has room for as many in each.
inline constexpr int64_t kMostIds = 1 << 20;
// The value of an id as float32; 0 if it is smaller than the smallest normal one, because whether
// subnormal numbers are kept depends on the mode of a thread. Nothing if it is not finite or too
// large.
std::optional<float> id_value(double value);
// Writes the values of a sample's ids to a record (schema.h), and 0 to the columns that are left.
void put_values(std::span<const float> values, std::span<int64_t> columns);
// An entry of a format's `args`, from `least` to `most`, or `fallback` if it is not there.
Result<int64_t> get_whole(config::ArgReader& args, std::string_view key, int64_t fallback,
                          int64_t least, int64_t most);
Result<double> get_between(config::ArgReader& args, std::string_view key, double fallback,
                           double least, double most);

}  // namespace muster::data
