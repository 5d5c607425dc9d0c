// Files of packed samples: the formats that `muster data pack` writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/data/pack/stored_sample.h"

namespace muster::data {

// What the fields of a record, or the columns, are called.
inline constexpr std::string_view kPackedInput = "input";
inline constexpr std::string_view kPackedValues = "values";
inline constexpr std::string_view kPackedLabel = "label";

// One file being written. What it writes follows from the samples and the calls alone. Not safe for
// concurrent use.
class SampleWriter {
 public:
  virtual ~SampleWriter() = default;
  // The samples of one block, stored side by side as the form says; at least one.
  virtual Status write_block(std::span<const std::byte> samples) = 0;
  // What follows the last block. Neither syncs nor closes the file.
  virtual Status finish() = 0;
};

// TFRecord with tf.Example messages: `input` is a byte string, floats or integers, `values` (of
// ids) floats, `label` an integer or a float. The file must outlive the writer.
std::unique_ptr<SampleWriter> write_tfrecord(WritableFile& file, const SampleForm& form);

// The formats by name.
std::vector<std::string> packed_formats();
// Whether there is such a format (kUsage if not), and what it needs.
Status check_packed_format(const std::string& format);
// `format` has been checked.
Result<std::unique_ptr<SampleWriter>> open_writer(const std::string& format, WritableFile& file,
                                                  const SampleForm& form);

}  // namespace muster::data
