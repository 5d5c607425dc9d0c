// What follows from the options of a data source alone: how its data is read (docs/data.md).
//
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::config {

// Whether it begins like "s3://".
bool is_url(std::string_view address);
// Whether it stands for several files: * or ? in a path.
bool has_wildcard(std::string_view address);

// The formats that come with Muster. `whole`: read when the job starts, or where the files are
// (images, lmdb, tokens). `blocks`: also, or only, while they are used.
struct SourceFormat {
  std::string_view name;
  bool whole = false;
  bool blocks = false;
};
const std::vector<SourceFormat>& source_formats();
// Their names, for those that fulfil the condition.
std::vector<std::string> formats_with_path();
std::vector<std::string> formats_of_blocks();

// `label` of a source whose samples have none, for models that were trained. Their targets are -1,
// or NaN. Never in the options of a job that was checked.
inline constexpr std::string_view kNoLabel = "none";
inline bool has_labels(const SourceOptions& source) { return source.label != kNoLabel; }
// Takes the labels from a source; error (kUsage): in files of its format there are always some, or
// never.
Status remove_labels(SourceOptions& source);

// Whether its records have fields with names: jsonl, tfrecord, webdataset, mds, parquet, arrow.
bool has_fields(const SourceOptions& source);
// Whether the source is read by blocks: `read: blocks`; or `read: auto`, and the format cannot be
// read otherwise, or the path is a URL or has wildcards. False for a format registered in C++,
// which says so itself.
bool is_read_by_blocks(const SourceOptions& source);

// A source of other samples for a trained model: those at `path`. In the format of the job's test
// data, or of its training data if it has none, with the other options of that source, but all
// samples; `format`, if it is not empty and another one, has default options. Error (kUsage): a
// format that has no path.
Result<SourceOptions> source_at(const DataOptions& data, const std::string& path,
                                const std::string& format);

}  // namespace muster::config
