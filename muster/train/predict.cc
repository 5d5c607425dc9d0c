#include "muster/train/predict.h"

#include <algorithm>
#include <map>

#include "muster/base/random.h"

namespace muster::train {
namespace {

// All numbers of a tensor in float32.
std::vector<float> copy_numbers(const torch::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  const auto* numbers = flat.const_data_ptr<float>();
  return {numbers, numbers + flat.numel()};
}

Predictions find_classes(const torch::Tensor& scores, const data::Batch& batch, bool labelled) {
  const auto probabilities = scores.softmax(-1);
  const auto best = probabilities.argmax(1).contiguous();
  const auto* classes = best.const_data_ptr<int64_t>();
  const auto* labels = reinterpret_cast<const int64_t*>(batch.targets.data());
  Predictions found;
  found.count = batch.count;
  found.classes.assign(classes, classes + batch.count);
  found.probabilities = copy_numbers(probabilities.gather(1, best.unsqueeze(1)));
  if (labelled) found.labels.assign(labels, labels + batch.count);
  return found;
}

// The bytes of each token of the prompt, matched greedily against the vocabulary: its entries are
// single characters, in UTF-8, or single bytes.
Result<std::vector<int64_t>> tokenize(const std::string& text,
                                      const std::vector<std::string>& vocabulary) {
  std::map<std::string, int64_t> tokens;
  for (size_t i = 0; i < vocabulary.size(); ++i) tokens[vocabulary[i]] = static_cast<int64_t>(i);
  std::vector<int64_t> result;
  for (size_t at = 0; at < text.size();) {
    size_t length = 4;
    while (length > 0 && !tokens.contains(text.substr(at, length))) --length;
    if (length == 0) {
      return Error(ErrorKind::kUsage, "the prompt has '{}', which is not in the model's vocabulary",
                   text.substr(at, 1));
    }
    result.push_back(tokens[text.substr(at, length)]);
    at += length;
  }
  return result;
}

int64_t draw(const torch::Tensor& scores, double temperature, RandomStream& random) {
  if (temperature <= 0) return scores.argmax().item<int64_t>();
  const auto probabilities = (scores.to(torch::kFloat64) / temperature).softmax(-1).contiguous();
  const auto* p = probabilities.const_data_ptr<double>();
  double left = random.uniform();
  const int64_t last = probabilities.numel() - 1;
  for (int64_t i = 0; i < last; ++i) {
    left -= p[i];
    if (left < 0) return i;
  }
  return last;
}

}  // namespace

Result<Predictions> predict_batch(LaneNet& net, const data::Batch& batch,
                                  const data::Schema& schema, const PredictOptions& options) {
  const bool features = !options.layer.empty();
  MUSTER_TRY(const auto output,
             features ? net.features(batch, options.layer) : net.predict(batch, schema));
  const auto samples = static_cast<int64_t>(batch.count);
  if (output.dim() == 0 || output.size(0) != samples) {
    return Error(ErrorKind::kUsage, "{} does not put out something for each sample",
                 features ? fmt::format("layer '{}'", options.layer) : "the model");
  }
  const auto rows = output.reshape({samples, -1});
  const auto width = static_cast<size_t>(rows.size(1));
  if (!options.raw && !features && schema.classes > 0 && schema.target_elements() == 1) {
    return find_classes(rows, batch, options.labels);
  }
  Predictions found;
  found.count = batch.count;
  if (options.raw || features) {
    found.numbers = copy_numbers(rows);
    found.width = width;
    found.features = features;
    return found;
  }
  if (schema.target == data::DType::kFloat32 && width == 1 && schema.target_elements() == 1) {
    const auto* targets = reinterpret_cast<const float*>(batch.targets.data());
    found.values = copy_numbers(rows);
    if (options.labels) found.targets.assign(targets, targets + batch.count);
    return found;
  }
  return Error(ErrorKind::kUsage,
               "this model puts out {} numbers for each sample: show them with --raw{}", width,
               schema.vocabulary.empty() ? "" : ", or use --prompt to let it write text");
}

Result<std::vector<nlohmann::json>> predict_samples(Session& session, const data::Dataset& dataset,
                                                    const std::vector<uint64_t>& samples,
                                                    const PredictOptions& options) {
  for (const auto sample : samples) {
    if (sample >= dataset.size()) {
      return Error(ErrorKind::kUsage, "there is no sample {}: the data has {} (from 0 on)", sample,
                   dataset.size());
    }
  }
  data::Batch batch;
  batch.memory = session.plan().memory;
  MUSTER_RETURN_IF_ERROR(data::read_samples(dataset, samples, batch));
  Predictions predictions;
  MUSTER_RETURN_IF_ERROR(session.for_each_net(1, [&](LaneNet& net, size_t) -> Status {
    MUSTER_TRY(predictions, predict_batch(net, batch, session.schema(), options));
    return {};
  }));
  std::vector<nlohmann::json> results;
  results.reserve(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    results.push_back(to_json(predictions, i, samples[i]));
  }
  return results;
}

Result<std::string> generate_text(Session& session, const GenerateOptions& options) {
  const auto& schema = session.schema();
  if (schema.vocabulary.empty() || schema.input != data::DType::kInt64) {
    return Error(ErrorKind::kUsage, "--prompt needs a model trained on text; this one is not");
  }
  MUSTER_TRY(auto tokens, tokenize(options.prompt, schema.vocabulary));
  if (tokens.empty()) return Error(ErrorKind::kUsage, "the prompt is empty");
  const auto context = static_cast<size_t>(schema.input_shape[0]);
  RandomStream random(options.seed, Purpose::kUser);
  std::string text = options.prompt;
  data::Batch batch;
  batch.memory = session.plan().memory;
  data::Schema window = schema;
  for (int64_t i = 0; i < options.length; ++i) {
    const size_t used = std::min(context, tokens.size());
    window.input_shape = {static_cast<int64_t>(used)};
    batch.reserve(schema, 1);
    batch.count = 1;
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(used), tokens.end(),
              reinterpret_cast<int64_t*>(batch.inputs.data()));
    MUSTER_TRY(const auto output, session.predict(batch, &window));
    const auto next = draw(output[0][static_cast<int64_t>(used) - 1], options.temperature, random);
    tokens.push_back(next);
    text += schema.vocabulary[static_cast<size_t>(next)];
  }
  return text;
}

}  // namespace muster::train
