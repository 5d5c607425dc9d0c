#include "muster/model/registry.h"

#include <exception>

#include <torch/utils.h>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/model/dropout.h"
#include "muster/model/layer_list.h"
#include "muster/model/losses.h"
#include "muster/model/pt2_net.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

template <typename Map>
std::vector<std::string> keys_of(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

// libtorch's messages carry a stack trace after the first line.
std::string first_line(const std::exception& exception) {
  const auto* error = dynamic_cast<const c10::Error*>(&exception);
  const std::string text = error != nullptr ? error->what_without_backtrace() : exception.what();
  return text.substr(0, text.find('\n'));
}

Result<std::shared_ptr<Net>> make_net(const Registry& registry, const config::ModelOptions& options,
                                      const data::Schema& schema,
                                      const std::shared_ptr<LaneContext>& lane,
                                      const pt2::File* file) {
  if (!options.file.empty()) {
    if (file != nullptr) return make_pt2_net(*file, options, schema, lane);
    MUSTER_TRY(const auto opened, pt2::File::open(options.file));
    return make_pt2_net(opened, options, schema, lane);
  }
  if (!options.layers.is_null()) return make_layer_list(options.layers, options.loss, schema, lane);
  const bool from_zoo = !options.zoo.empty();
  const std::string& name = from_zoo ? options.zoo : options.use;
  if (name.empty()) {
    return Error(ErrorKind::kJob,
                 "the job has no model; give one of model.zoo, model.layers, model.file and "
                 "model.use");
  }
  const NetFactory* factory = registry.find_model(name);
  if (factory == nullptr) {
    const auto names = registry.model_names();
    return Error(ErrorKind::kJob, "model.{}: there is no model '{}'{}; there are {}{}",
                 from_zoo ? "zoo" : "use", name, did_you_mean(name, names), join_words(names),
                 from_zoo ? ""
                          : "; for one of your own name the program that it is registered in: "
                            "--worker PROGRAM");
  }
  return (*factory)(options.args, schema, lane);
}

// With the metrics of cross_entropy, if its output can be scores of classes.
Result<Loss> loss_of_file(const Registry& registry, const pt2::File& file,
                          const config::ModelOptions& options, const data::Schema& schema) {
  MUSTER_TRY(const auto interface, find_interface(file.program(), options, schema));
  Loss loss{std::string(kLossOfFile), nullptr, {}, Loss::Target::kAny};
  const Loss* classes = registry.find_loss("cross_entropy");
  if (interface.output == pt2::kNoSlot || schema.target != data::DType::kInt64 ||
      classes == nullptr) {
    return loss;
  }
  const auto& meta = file.program().slots[static_cast<size_t>(interface.output)];
  if (meta && meta->sizes.size() == schema.target_shape.size() + 2) loss.metrics = classes->metrics;
  return loss;
}

}  // namespace

size_t Loss::bins() const {
  size_t all = 0;
  for (const Metric& metric : metrics) all += metric.bins;
  return all;
}

Registry Registry::builtin() {
  Registry registry;
  registry.add_model("deepfm", make_deepfm);
  registry.add_model("dlrm", make_dlrm);
  registry.add_model("gpt", make_gpt);
  registry.add_model("lenet", make_lenet);
  registry.add_model("mlp", make_mlp);
  registry.add_model("resnet", make_resnet);
  registry.add_model("two-tower", make_two_tower);
  registry.add_model("wide-deep", make_wide_deep);
  add_click(registry);
  add_cross_entropy(registry);
  add_mse(registry);
  return registry;
}

void Registry::add_model(std::string name, NetFactory factory) {
  MUSTER_CHECK(!models_.contains(name), "there is a model '" + name + "' already");
  models_.emplace(std::move(name), std::move(factory));
}

void Registry::add_loss(std::string name, LossFunction compute, std::vector<Metric> metrics,
                        Loss::Target target) {
  MUSTER_CHECK(!losses_.contains(name), "there is a loss '" + name + "' already");
  Loss loss{name, std::move(compute), std::move(metrics), target};
  losses_.emplace(std::move(name), std::move(loss));
}

const NetFactory* Registry::find_model(const std::string& name) const {
  const auto at = models_.find(name);
  return at == models_.end() ? nullptr : &at->second;
}

const Loss* Registry::find_loss(const std::string& name) const {
  const auto at = losses_.find(name);
  return at == losses_.end() ? nullptr : &at->second;
}

std::vector<std::string> Registry::model_names() const { return keys_of(models_); }
std::vector<std::string> Registry::loss_names() const { return keys_of(losses_); }

Result<std::shared_ptr<Net>> build(const Registry& registry, const config::ModelOptions& options,
                                   const data::Schema& schema,
                                   const std::shared_ptr<LaneContext>& lane,
                                   const pt2::File* file) {
  MUSTER_CHECK(lane != nullptr, "a net needs its lane's context");
  try {
    torch::manual_seed(lane->seed);
    MUSTER_TRY(auto net, make_net(registry, options, schema, lane, file));
    MUSTER_CHECK(net != nullptr, "a model's factory returned no net");
    MUSTER_RETURN_IF_ERROR(check_net(*net));
    number_dropouts(*net);
    net->train();
    return net;
  } catch (
      const std::exception& exception) {  // a factory's, or a tensor too large for this machine
    return Error(ErrorKind::kJob, "the model could not be made: {}", first_line(exception));
  }
}

Result<Loss> find_loss(const Registry& registry, const config::ModelOptions& options,
                       const data::Schema& schema, const pt2::File* file) {
  if (options.loss == kLossOfFile && !options.file.empty()) {
    if (file != nullptr) return loss_of_file(registry, *file, options, schema);
    MUSTER_TRY(const auto opened, pt2::File::open(options.file));
    return loss_of_file(registry, opened, options, schema);
  }
  const Loss* loss = registry.find_loss(options.loss);
  if (loss == nullptr) {
    const auto names = registry.loss_names();
    return Error(ErrorKind::kJob, "model.loss: there is no loss '{}'{}; there are {}", options.loss,
                 did_you_mean(options.loss, names), join_words(names));
  }
  const bool has_classes = schema.target == data::DType::kInt64;
  if (loss->target == Loss::Target::kClasses && !has_classes) {
    return Error(
        ErrorKind::kJob,
        "model.loss: '{}' needs class numbers as targets, but the data has values; use mse",
        loss->name);
  }
  if (loss->target == Loss::Target::kValues && has_classes) {
    return Error(ErrorKind::kJob,
                 "model.loss: '{}' needs values as targets, but the data has class numbers; use "
                 "cross_entropy",
                 loss->name);
  }
  return *loss;
}

}  // namespace muster::model
