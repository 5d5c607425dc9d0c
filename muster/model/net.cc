#include "muster/model/net.h"

#include <map>
#include <set>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include "muster/base/text.h"
#include "muster/model/layers.h"

namespace muster::model {
namespace {

constexpr const char* kUseDropout = "use muster::model::Dropout";
constexpr const char* kUseBatchNorm = "use muster::model::BatchNorm";

// What is wrong with a module, and what to do; empty when nothing is.
struct Objection {
  std::string what;
  std::string remedy;
};

template <typename... Modules>
bool is_any(const torch::nn::Module& module) {
  return ((dynamic_cast<const Modules*>(&module) != nullptr) || ...);
}

template <typename InstanceNorm>
bool tracks_statistics(const torch::nn::Module& module) {
  const auto* norm = dynamic_cast<const InstanceNorm*>(&module);
  return norm != nullptr && norm->options.track_running_stats();
}

template <typename Module>
bool drops_out(const torch::nn::Module& module) {
  const auto* typed = dynamic_cast<const Module*>(&module);
  return typed != nullptr && typed->options.dropout() > 0;
}

template <typename Module>
bool limits_norm(const torch::nn::Module& module) {
  const auto* typed = dynamic_cast<const Module*>(&module);
  return typed != nullptr && typed->options.max_norm().has_value();
}

constexpr const char* kDraws = "draws from torch's global random generator";

Objection object_to_draws(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  if (is_any<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
             nn::FeatureAlphaDropoutImpl>(module)) {
    return {kDraws, kUseDropout};
  }
  if (is_any<nn::RReLUImpl>(module)) return {kDraws, "use torch::nn::LeakyReLU"};
  if (drops_out<nn::RNNImpl>(module) || drops_out<nn::LSTMImpl>(module) ||
      drops_out<nn::GRUImpl>(module) || drops_out<nn::MultiheadAttentionImpl>(module)) {
    return {"has dropout, which draws from torch's global random generator",
            "set its dropout to 0 and put muster::model::Dropout beside it"};
  }
  if (is_any<nn::FractionalMaxPool2dImpl>(module)) {
    return {kDraws, "use torch::nn::MaxPool2d or AdaptiveMaxPool2d"};
  }
  if (is_any<nn::FractionalMaxPool3dImpl>(module)) {
    return {kDraws, "use torch::nn::MaxPool3d or AdaptiveMaxPool3d"};
  }
  return {};
}

Objection object_to_changes(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  if (is_any<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl>(module)) {
    return {"updates its running statistics by itself, once per lane", kUseBatchNorm};
  }
  if (tracks_statistics<nn::InstanceNorm1dImpl>(module) ||
      tracks_statistics<nn::InstanceNorm2dImpl>(module) ||
      tracks_statistics<nn::InstanceNorm3dImpl>(module)) {
    return {"updates its running statistics by itself, once per lane",
            "set track_running_stats(false)"};
  }
  if (limits_norm<nn::EmbeddingImpl>(module) || limits_norm<nn::EmbeddingBagImpl>(module)) {
    return {"has max_norm, which changes weights in forward",
            "leave max_norm out and clip gradients (optimizer.clip.norm)"};
  }
  return {};
}

// Weights and statistics are in the state of a job: saved, sent to workers that join, the same on
// all of them. Buffers are not, unless they are statistics.
Status check_buffers(Net& net) {
  std::set<const void*> statistics;
  for (const Statistic& statistic : collect_statistics(net)) {
    statistics.insert(statistic.running.unsafeGetTensorImpl());
  }
  for (const auto& entry : net.named_buffers()) {
    if (statistics.contains(entry.value().unsafeGetTensorImpl())) continue;
    return Error(ErrorKind::kJob,
                 "buffer '{}' is no running statistic, so a checkpoint would not contain it and "
                 "workers could differ in it; make a constant a plain member of the module, and "
                 "declare a running statistic with KeepsStatistics (muster/model/net.h)",
                 entry.key());
  }
  return {};
}

// "torch::nn::Dropout" for torch::nn::DropoutImpl.
std::string type_name(const torch::nn::Module& module) {
  std::string name = module.name();
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

}  // namespace

torch::Tensor Layer::operator()(const torch::Tensor& input) {
  auto output = forward(input);
  show(output);
  return output;
}

ComputesLoss::~ComputesLoss() = default;

KeepsStatistics::~KeepsStatistics() = default;

Result<torch::Tensor> output_of_layer(Net& net, const std::string& layer,
                                      const std::function<void()>& run) {
  std::vector<std::string> names;
  Layer* observed = nullptr;
  for (const auto& entry : net.named_modules()) {
    auto* candidate = dynamic_cast<Layer*>(entry.value().get());
    if (candidate == nullptr || entry.key().empty()) continue;  // the net itself has no name
    if (entry.key().starts_with('#')) continue;  // of Muster, not of the model (pt2_net.h)
    if (entry.key() == layer) observed = candidate;
    names.push_back(entry.key());
  }
  if (observed == nullptr) {
    return Error(ErrorKind::kUsage, "the model has no layer '{}'{}; its layers are {}", layer,
                 did_you_mean(layer, names), join_words(names));
  }
  torch::Tensor output;
  // A copy: layers such as relu may go on to change it in place.
  const auto keep = [&](const torch::Tensor& seen) {
    output = seen.detach().to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
  };
  struct Observing {
    Layer* layer;
    ~Observing() { layer->observe({}); }
  } const observing{observed};
  observed->observe(keep);
  run();
  if (!output.defined()) {
    return Error(ErrorKind::kUsage,
                 "layer '{}' has no output of its own: the model does not run it as a layer; take "
                 "another one",
                 layer);
  }
  return output;
}

std::vector<Statistic> collect_statistics(Net& net) {
  std::vector<Statistic> all;
  for (const auto& entry : net.named_modules()) {
    auto* keeper = dynamic_cast<KeepsStatistics*>(entry.value().get());
    if (keeper == nullptr) continue;
    for (Statistic& statistic : keeper->statistics()) {
      if (!entry.key().empty()) statistic.name = entry.key() + "." + statistic.name;
      all.push_back(std::move(statistic));
    }
  }
  return all;
}

std::unordered_set<std::string> names_of_embeddings(const Net& net) {
  const auto lookups = net.lookups();
  std::unordered_set<std::string> names(lookups.begin(), lookups.end());
  for (const auto& entry : net.named_modules()) {
    const torch::nn::Module& module = *entry.value();
    if (!is_any<Embedding, PositionalEmbedding, torch::nn::EmbeddingImpl,
                torch::nn::EmbeddingBagImpl>(module)) {
      continue;
    }
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      names.insert(entry.key().empty() ? parameter.key() : entry.key() + "." + parameter.key());
    }
  }
  return names;
}

Status check_net(Net& net) {
  for (const auto& entry : net.named_modules()) {
    const torch::nn::Module& module = *entry.value();
    Objection objection = object_to_changes(module);
    if (objection.what.empty() && !net.generator_is_seeded()) objection = object_to_draws(module);
    if (objection.what.empty()) continue;
    return Error(ErrorKind::kJob, "module '{}' ({}) {}, so bits could not be kept; {} instead",
                 entry.key(), type_name(module), objection.what, objection.remedy);
  }
  MUSTER_RETURN_IF_ERROR(check_buffers(net));
  std::map<const void*, std::string> names;
  for (const auto& entry : net.named_parameters()) {
    const torch::Tensor& tensor = entry.value();
    if (tensor.scalar_type() != torch::kFloat32) {
      return Error(ErrorKind::kJob,
                   "parameter '{}' is of type {}; Muster keeps weights in float32 (job key "
                   "'precision' decides what they are computed with)",
                   entry.key(), torch::toString(tensor.scalar_type()));
    }
    if (!tensor.is_contiguous()) {
      return Error(ErrorKind::kJob,
                   "parameter '{}' is not contiguous; register a contiguous tensor", entry.key());
    }
    const auto [known, is_new] = names.emplace(tensor.unsafeGetTensorImpl(), entry.key());
    if (!is_new) {
      return Error(ErrorKind::kJob,
                   "parameters '{}' and '{}' are the same tensor; register it once and use it from "
                   "there",
                   known->second, entry.key());
    }
  }
  return {};
}

}  // namespace muster::model
