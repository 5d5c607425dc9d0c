// The worker's command line. `muster` starts it; people rarely do.
//
//   muster-worker train   --run DIR [--display normal|quiet|none|json]
//                         [--coordinator ADDRESS,... --id SLOT [--host HOST] [--job-name NAME]]
//   muster-worker eval    --run DIR [--checkpoint newest|best|STEP] [-s KEY=VALUE] [-o table|json]
//                         [--data ADDRESS [--format FORMAT]]
//   muster-worker predict --run DIR [--checkpoint ...] [--data ...] [--samples 0-9] [--layer NAME]
//                         [--prompt TEXT ...]
//   muster-worker predict --run DIR ... --parts DIR --output-format csv|jsonl|parquet --id ID
//                         computes parts of a whole data set (predict_parts.h)
//   muster-worker check   --job FILE       opens the data and builds the model, trains nothing
//   muster-worker probe                    what this machine can do, as JSON
//
// Of several workers, one on a host without the run directory makes it from what the coordinator
// says of the run, if the job has checkpoint.to (track/run_identity.h).
//
// A program that brings its own models links this library and calls worker_main with its
// registries. Exit codes: docs/exit-codes.md.
#pragma once

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/train/session.h"

namespace muster::train {

int worker_main(int argc, char** argv, const Registries& registries);
// The job that worker_main() would train or check with these arguments.
Result<config::Job> job_of_worker(int argc, char** argv);

}  // namespace muster::train
