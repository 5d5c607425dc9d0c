// The classes of the format `images`: directories, numbered in the order of their names.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::data {

// Bytewise sorted: the locale must not change a model's outputs. Errors: kIo if the directory
// cannot be listed, kData if it has no directories.
Result<std::vector<std::string>> image_classes(const std::string& path);

// Both being `images` with labels, the classes of `test` are numbered as those of `train`, also if
// some have no directory in it: sets its argument `class_names`, if the job does not. Other sources
// are left alone.
Status number_classes_alike(const config::SourceOptions& train, config::SourceOptions& test);

}  // namespace muster::data
