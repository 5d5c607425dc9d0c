// What the data commands share: the data of a job, opened as a worker opens it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/data/blocks/open_blocks.h"
#include "muster/data/dataset.h"

#include "tools/muster/commands.h"
#include "tools/muster/status_line.h"

namespace muster::cli {

struct NamedSource {
  std::string key;  // "data.train"
  config::SourceOptions options;
};

// Prints its warnings.
Result<config::Job> load_job(const std::string& path, const std::vector<std::string>& sets,
                             Context& context);

// `context` and `line` must outlive it.
data::BlockSetup setup_for(const config::Job& job, Context& context, StatusLine& line);

// Of one source of the job: test data may have blocks of any length.
data::BlockSetup own_setup(const NamedSource& source, data::BlockSetup setup);

Result<std::unique_ptr<data::Dataset>> open_source(const NamedSource& source,
                                                   const data::BlockSetup& setup);

// Those that the job has. Test data without `classes` has as many as the training data, as when the
// job trains; training data that is read as a whole is opened if they must be counted.
Result<std::vector<NamedSource>> sources_of(const config::Job& job, const data::BlockSetup& setup);

}  // namespace muster::cli
