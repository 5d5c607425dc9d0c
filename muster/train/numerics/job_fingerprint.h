// How the parts of a job's fingerprint (base/job_fingerprint.h) are computed from a model and
// written to JSON, and what it means for a run that is resumed. session.h puts them together.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "muster/base/hash.h"
#include "muster/base/job_fingerprint.h"
#include "muster/base/result.h"
#include "muster/data/dataset.h"
#include "muster/train/state/arena.h"
#include "muster/train/step/gradient_sum.h"
#include "muster/train/step/lane_net.h"

namespace muster::train {

// Trains one lane of `samples` samples, the first ones of the data, with the weights that the arena
// holds, and hashes the loss, the gradients and the statistics bit by bit: what the kernels of this
// model give in this process. Only `sum` is used for it, until its next begin(); the arena does not
// change. `keep_waiting`: while it waits for data that is streamed.
Result<Hash128> hash_gradients(LaneNet& net, GradientSum& sum, Arena& arena,
                               const data::Dataset& dataset, uint64_t samples, Memory& memory,
                               const data::KeepWaiting& keep_waiting = {});

nlohmann::json to_json(const JobFingerprint& fingerprint);
// What to_json() made. Parts that are missing are empty.
JobFingerprint fingerprint_from(const nlohmann::json& object);

// Whether weights of a checkpoint with this meta.json belong to a model.file with the hash `own`;
// empty: the job has no such file.
Status check_model_file(const std::string& own, const nlohmann::json& meta);

// Whether a run with the fingerprint `own` can continue from a checkpoint with this meta.json: an
// error if not, else a sentence to warn with, or "".
Result<std::string> check_resumed(const JobFingerprint& own, const nlohmann::json& meta,
                                  Accepted accepted);

}  // namespace muster::train
