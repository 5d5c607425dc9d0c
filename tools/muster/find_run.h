// From what a person calls a run to its directory.
#pragma once

#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/track/run_directory.h"

#include "tools/muster/arguments.h"

namespace muster::cli {

// `choice.name` may be a path, the name of a run under `choice.runs`, the start of a name if only
// one run has it, `latest`, or empty, which is the same. An error (kUsage) says what there is.
Result<track::RunDirectory> find_run(const RunChoice& choice, FileSystem& files);

// Whether it is where a job sent its run (checkpoint.to) rather than a run: a URL, or a directory
// with the latest.json of a copy.
bool is_copy(const std::string& name, FileSystem& files);

// The last part of its path: what `muster resume` takes.
std::string run_name(const track::RunDirectory& run);

// Other test data than that of the run's job.
struct OtherData {
  std::string path;    // a path or a URL; empty: none
  std::string format;  // empty: as that of the job
};

// The job of a run, with changes. The environment has no say: a run is what its directory says.
// `sets` may only name the keys in `allowed`, or what is inside them; `why` ends the sentence for
// one that does not: "...; a run goes on with the options it started with".
Result<config::Job> load_run_job(const track::RunDirectory& run,
                                 const std::vector<std::string>& sets,
                                 const std::vector<std::string>& allowed, const std::string& why,
                                 FileSystem& files, const OtherData& other = {});

// "best" or "newest", whichever a command takes that was not told: the best if one was marked.
Result<std::string> default_checkpoint(const track::RunDirectory& run, FileSystem& files);

// Whether the run has a checkpoint of this step.
Result<bool> has_checkpoint(const track::RunDirectory& run, const std::string& step,
                            FileSystem& files);

// The step that "best" (the newest, if none is marked) or "newest" means now, for a command that
// takes long: a run that still trains marks others meanwhile. A step stays as it is, and so does
// all else if there are no checkpoints: a worker says so.
Result<std::string> step_of_checkpoint(const track::RunDirectory& run, const std::string& which,
                                       FileSystem& files);

}  // namespace muster::cli
