// Predictions for a whole data set, as one of several workers that share the parts of it.
//
// Each worker claims parts (parts/parts_directory.h), computes them and writes their lines. Which
// worker computes a part, and with how many threads, changes no byte: batches begin anew with each
// part, and parts follow from the data.
#pragma once

#include "muster/data/dataset.h"
#include "muster/parts/parts_directory.h"
#include "muster/train/predict.h"
#include "muster/train/predictions.h"
#include "muster/train/session.h"

namespace muster::train {

struct PartOptions {
  PredictOptions what;
  Lines lines = Lines::kCsv;
  // While a lane thread waits for data that is streamed; may be called by several at a time. Empty:
  // it waits as long as it takes.
  data::KeepWaiting keep_waiting = {};  // NOLINT(readability-redundant-member-init)
};

// The parts that these samples are cut into, and all that their lines depend on. Runs the model on
// the first sample, for the header.
Result<parts::PartPlan> plan_parts(Session& session, const data::Dataset& dataset,
                                   const PartOptions& options);

// Computes parts until all of them are done, by this worker or by others. Errors: those of the
// plan, the data and the disk.
Status predict_parts(Session& session, const data::Dataset& dataset,
                     parts::PartsDirectory& directory, const PartOptions& options);

}  // namespace muster::train
