// The formats that come with Muster, and what they share. Inside this module only: programs open
// data through the Registry (dataset.h). Each format has two entrances: one takes the options of a
// job, the other readers, so that tests and fuzzers can feed it bytes from memory.
#pragma once

#include <memory>
#include <string_view>

#include "muster/base/result.h"
#include "muster/config/job.h"
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

// The samples that `part` and `limit` leave of `size`; at least one, or an error that names `file`.
Result<Slice> select_samples(const config::SourceOptions& options, uint64_t size,
                             std::string_view file);
// `mean` and `deviation` must be finite and the latter above 0.
Status check_scaling(const config::SourceOptions& options);

}  // namespace muster::data
