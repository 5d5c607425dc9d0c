// What a trained model says: classes or values for samples of a data set, features of a layer, or
// text that goes on from a prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/train/predictions.h"
#include "muster/train/session.h"

namespace muster::train {

struct PredictOptions {
  bool raw = false;    // all that the model puts out, instead of a class or a value
  std::string layer;   // features of this layer instead; empty: of none
  bool labels = true;  // the data has some, which are shown beside
};

// Of a batch with this schema. kUsage for what this model does not have: the sentence says which
// option helps.
Result<Predictions> predict_batch(LaneNet& net, const data::Batch& batch,
                                  const data::Schema& schema, const PredictOptions& options);

// One object per sample (predictions.h).
Result<std::vector<nlohmann::json>> predict_samples(Session& session, const data::Dataset& dataset,
                                                    const std::vector<uint64_t>& samples,
                                                    const PredictOptions& options);

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
