// Predictions for a whole data set, as one of several workers that share the parts of it.
//
// Each worker claims parts (parts/parts_directory.h), computes them and writes their lines or rows.
// Which worker computes a part, and with how many threads, changes no byte: batches begin anew with
// each part, and parts follow from the data. Lines are joined by the process that started the
// workers; rows by one of the workers, when all parts are done.
#pragma once

#include "muster/data/dataset.h"
#include "muster/data/table_writer.h"
#include "muster/parts/parts_directory.h"
#include "muster/train/predict.h"
#include "muster/train/predictions.h"
#include "muster/train/session.h"

namespace muster::train {

struct PartOptions {
  PredictOptions what;
  OutputFormat output = OutputFormat::kCsv;
  // While a lane thread waits for data that is streamed; may be called by several at a time. Empty:
  // it waits as long as it takes.
  data::KeepWaiting keep_waiting = {};  // NOLINT(readability-redundant-member-init)
};

// Whether this format can be written. kMachine: it needs a plugin that is not there.
Status check_output(OutputFormat format);

struct PredictPlan {
  parts::PartPlan parts;
  data::TableForm form;  // of a row, if the output has rows
};

// The parts that these samples are cut into, and all that their lines or rows depend on. Runs the
// model on the first sample, for the columns. kData: there are no samples.
Result<PredictPlan> plan_parts(Session& session, const data::Dataset& dataset,
                               const PartOptions& options);

// Computes parts until all of them are done, by this worker or by others; if they are rows, then
// returns when the directory has the result. Errors: those of check_output, the plan, the data and
// the disk.
Status predict_parts(Session& session, const data::Dataset& dataset,
                     parts::PartsDirectory& directory, const PartOptions& options);

}  // namespace muster::train
