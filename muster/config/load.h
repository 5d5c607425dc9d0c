// From a job file, the environment and -s to a job that makes sense.
//
// Later wins: the default, the file, the MUSTER_ environment, -s from left to right. Paths in a
// file are relative to the file's own directory, those in the environment and in -s to the current
// one; all are stored absolute, so that the resolved job runs from anywhere.
//
// read_job and load_job are pure: the same sources give the same job. gather_sources looks at this
// process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/table.h"

namespace muster::config {

struct Sources {
  std::string file_text;
  std::string file_name;          // as errors name it; empty: there is no file
  std::string base_dir;           // of the file; empty: paths in it stay as they are
  std::string current_dir;        // for paths in -s and the environment; empty: the same
  std::vector<std::string> sets;  // "optimizer.lr=0.1"
  // All variables; those that do not start with MUSTER_ are not looked at.
  std::vector<std::pair<std::string, std::string>> environment;
  // MUSTER_ variables that are not options but mean something to somebody else.
  std::vector<std::string> other_variables = {"MUSTER_SOURCE_DIR", "MUSTER_UPDATE_DOCS"};
};

struct LoadedJob {
  Job job;
  Places places;
  // What a person should know but nothing stops for: a MUSTER_ variable that is no option. It may
  // be left from another version or another tool, so it is not an error.
  std::vector<std::string> warnings;
};

// -s takes options, whole sections (`-s 'optimizer={kind: adam}'`, which
// leaves the other options of the section alone) and parts of trees (`-s model.args.width=64`).
// Values are YAML; that of a text option is taken as it stands unless it begins with a quote.
Result<LoadedJob> read_job(const Sources& sources);
// The same, and validated (validate.h): what every command but the most curious wants.
Result<LoadedJob> load_job(const Sources& sources);

// The same with other test data (source_at() in source.h), which the -s of `sources` may change
// further. `path` may be relative to the current directory.
Result<LoadedJob> load_job_with_data(Sources sources, const std::string& path,
                                     const std::string& format);

// For a job that was resolved, written out and read again: gives its trees (a model's layers, the
// arguments of something registered in C++) the places they have in the file that a person wrote,
// so that errors name its lines. Parts that are not the same there keep theirs.
void borrow_places(Job& job, std::string_view file_text, const std::string& file_name);

// The file at `path` (empty: none), this process's environment and current directory.
Result<Sources> gather_sources(FileSystem& fs, const std::string& path,
                               std::vector<std::string> sets);

}  // namespace muster::config
