// What a trained model says: classes or values for samples of a data set, or text that goes on from
// a prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/train/session.h"

namespace muster::train {

// One object per sample: {"sample", "class", "probability", "label"} for classes, {"sample",
// "value", "target"} for values; with `raw`, {"sample", "output"}: all that the model puts out,
// flat.
Result<std::vector<nlohmann::json>> predict_samples(Session& session, const data::Dataset& dataset,
                                                    const std::vector<uint64_t>& samples, bool raw);

struct GenerateOptions {
  std::string prompt = "\n";
  int64_t length = 300;
  double temperature = 0.8;  // 0: always the likeliest
  uint64_t seed = 1;
};
// The text that a language model writes after the prompt. Errors if the model is not one, or if the
// prompt has a character that its vocabulary has not.
Result<std::string> generate_text(Session& session, const GenerateOptions& options);

}  // namespace muster::train
