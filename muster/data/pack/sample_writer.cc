#include "muster/data/pack/sample_writer.h"

#include <algorithm>

#include "muster/base/text.h"
#include "muster/data/blocks/column_plugin.h"

namespace muster::data {

std::vector<std::string> packed_formats() { return {"tfrecord", "parquet"}; }

Status check_packed_format(const std::string& format) {
  const auto formats = packed_formats();
  if (format == "parquet") {
    MUSTER_RETURN_IF_ERROR(load_column_plugin(format));
  }
  if (std::ranges::find(formats, format) != formats.end()) return {};
  return Error(ErrorKind::kUsage, "data cannot be packed as '{}'{}; the formats are {}", format,
               did_you_mean(format, formats), join_words(formats));
}

Result<std::unique_ptr<SampleWriter>> open_writer(const std::string& format, WritableFile& file,
                                                  const SampleForm& form) {
  if (format == "parquet") {
    MUSTER_TRY(const auto* plugin, load_column_plugin(format));
    return plugin->write_parquet(file, form);
  }
  return write_tfrecord(file, form);
}

}  // namespace muster::data
