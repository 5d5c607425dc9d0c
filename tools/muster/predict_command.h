// `muster predict --out`: predictions for a whole data set, by several workers, into one file.
//
// The work is cut into parts (muster/parts), in a directory beside the file. This process starts
// the workers, starts those again that die, shows how far they are, and in the end joins the parts;
// those of a Parquet file are joined by a worker, which can load the library for it. Whatever is
// killed, the same command continues with what is there.
#pragma once

#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/track/run_directory.h"

#include "tools/muster/commands.h"

namespace muster::cli {

Outcome predict_to_file(const PredictArguments& arguments, Context& context);

// The job of the run with the data that the command names. kUsage: an option that cannot change.
Result<config::Job> load_predict_job(const PredictArguments& arguments,
                                     const track::RunDirectory& run, FileSystem& files);
// What a worker is told besides the run: data, options, and what to write of each sample.
void add_predict_words(const PredictArguments& arguments, std::vector<std::string>& words);

// "csv", "jsonl" or "parquet", from the end of the name of a file; kUsage for any other.
Result<std::string> output_format_of(const std::string& out);

}  // namespace muster::cli
