#include "muster/train/step/lane_net.h"

#include <fnmatch.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "muster/exact/block_layout.h"
#include "muster/model/gradient_sink.h"
#include "muster/model/init.h"
#include "muster/model/pt2_net.h"
#include "muster/model/row_lookup.h"
#include "muster/train/rows/rows_base.h"

namespace muster::train {
namespace {

// Runs `body` and turns what libtorch throws into an error.
template <typename Body>
auto guarded(std::string_view doing, const Body& body) -> Result<decltype(body())> {
  try {
    return body();
  } catch (const c10::Error& e) {
    return Error(ErrorKind::kJob, "{}: {}", doing, e.what_without_backtrace());
  } catch (const model::RowGradientNotFinite& e) {
    return Error(ErrorKind::kNumerics, "{}", e.what());
  } catch (const RowsFailed& e) {
    return e.error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kMachine,
                 "{}: out of memory; a smaller batch or fewer threads need less", doing);
  } catch (const std::exception& e) {
    return Error(ErrorKind::kInternal, "{}: {}", doing, e.what());
  }
}

// bf16 autocast for the calling thread, while it lives. The cache of converted weights stays off:
// it is shared by all threads, so that what is in it would depend on what the others do.
class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Autocast() {
    if (on_) at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
};

// A tensor over memory that somebody else owns, for as long as that lives.
torch::Tensor view(const void* data, const std::vector<int64_t>& shape, torch::Dtype dtype) {
  return torch::from_blob(const_cast<void*>(data), shape, torch::TensorOptions().dtype(dtype));
}

torch::Dtype to_torch(data::DType dtype) {
  return dtype == data::DType::kFloat32 ? torch::kFloat32 : torch::kInt64;
}

std::vector<int64_t> batched(uint64_t count, const std::vector<int64_t>& shape) {
  std::vector<int64_t> all{static_cast<int64_t>(count)};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

torch::Tensor target_of(const data::Batch& batch, const data::Schema& schema) {
  return view(batch.targets.data(), batched(batch.count, schema.target_shape),
              to_torch(schema.target));
}

}  // namespace

Status check_patterns(const char* key, const std::vector<std::string>& patterns,
                      const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const bool used = std::ranges::any_of(names, [&](const std::string& name) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
    if (used) continue;
    std::vector<std::string> some;
    for (size_t i = 0; i < std::min<size_t>(4, names.size()); ++i) {
      some.push_back("'" + names[i] + "'");
    }
    return Error(ErrorKind::kJob, "{}: no parameter's name matches '{}'; the names begin {}, ...",
                 key, pattern, fmt::join(some, ", "));
  }
  return {};
}

Result<std::vector<TensorSpec>> describe(model::Net& net, const std::vector<std::string>& freeze) {
  std::vector<TensorSpec> tensors;
  const auto frozen = [&](const std::string& name) {
    return std::ranges::any_of(freeze, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
  };
  const auto embeddings = model::names_of_embeddings(net);
  for (const auto& item : net.named_parameters()) {
    const auto& parameter = item.value();
    if (parameter.scalar_type() != torch::kFloat32) {
      return Error(ErrorKind::kJob, "the model's parameter '{}' is not float32", item.key());
    }
    const bool keep = frozen(item.key()) || !parameter.requires_grad();
    optim::TensorInfo info = {.name = item.key(),
                              .dims = static_cast<int>(parameter.dim()),
                              .role = keep ? optim::Role::kFrozen : optim::Role::kWeight,
                              .lookup = embeddings.contains(item.key())};
    if (parameter.dim() >= 2 && parameter.numel() > 0) {
      info.rows = static_cast<size_t>(parameter.size(0));
      info.columns = static_cast<size_t>(parameter.numel()) / info.rows;
    }
    tensors.push_back({std::move(info), parameter.sizes().vec()});
  }
  for (const auto& statistic : model::collect_statistics(net)) {
    const auto role = frozen(statistic.name) ? optim::Role::kFrozen : optim::Role::kStatistic;
    tensors.push_back(
        {{statistic.name, static_cast<int>(statistic.running.dim()), role, statistic.momentum},
         statistic.running.sizes().vec()});
  }
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.info.name);
  MUSTER_RETURN_IF_ERROR(check_patterns("model.freeze", freeze, names));
  return tensors;
}

Result<FirstNet> build_first_net(const NetPlan& plan) {
  FirstNet first;
  first.context = std::make_shared<model::LaneContext>();
  first.context->seed = plan.seed;
  first.context->rows = plan.rows;
  MUSTER_TRY(first.net,
             model::build(*plan.models, plan.options, plan.schema, first.context, plan.file.get()));
  model::initialise(*first.net, plan.seed);
  MUSTER_TRY(first.tensors, describe(*first.net, plan.options.freeze));
  return first;
}

// libtorch calls this when the whole gradient of one parameter is in its .grad().
class LaneNet::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(LaneNet& owner, size_t tensor) : owner_(owner), tensor_(tensor) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    owner_.take_gradient(tensor_, parameter);
  }

 private:
  LaneNet& owner_;
  size_t tensor_;
};

// A layer that streams calls this with pieces of the gradient instead.
class LaneNet::TensorSink final : public model::GradientSink {
 public:
  TensorSink(LaneNet& owner, size_t tensor, torch::Tensor weight)
      : owner_(owner), tensor_(tensor), weight_(std::move(weight)) {}
  void add(size_t first, std::span<const float> piece) override {
    owner_.check_gradient_is_wanted();
    owner_.sum_->add_part(static_cast<int>(owner_.context_->lane), tensor_, first, piece);
  }
  bool only_use() const override { return uses_ == 1; }
  const torch::Tensor& weight() const { return weight_; }
  void set_uses(int uses) { uses_ = uses; }

 private:
  static_assert(kGrain % exact::kBlockSize == 0);
  LaneNet& owner_;
  size_t tensor_;
  torch::Tensor weight_;
  int uses_ = 0;  // in the present pass
};

LaneNet::LaneNet(const NetPlan& plan, Arena& arena, GradientSum* sum)
    : plan_(plan), arena_(arena), sum_(sum) {}
LaneNet::~LaneNet() {
  if (plan_.own != nullptr && net_ != nullptr) detach();
}

Result<std::unique_ptr<LaneNet>> LaneNet::create(const NetPlan& plan, Arena& arena,
                                                 GradientSum* sum, FirstNet* first) {
  std::unique_ptr<LaneNet> lane(new LaneNet(plan, arena, sum));
  if (first != nullptr) {
    lane->net_ = first->net;
    lane->context_ = first->context;
  } else {
    lane->context_ = std::make_shared<model::LaneContext>();
    lane->context_->seed = plan.seed;
    lane->context_->rows = plan.rows;
    MUSTER_TRY(lane->net_, model::build(*plan.models, plan.options, plan.schema, lane->context_,
                                        plan.file.get()));
  }
  MUSTER_TRY(auto attached,
             guarded("attaching the model", [&] { return lane->attach(first != nullptr); }));
  MUSTER_RETURN_IF_ERROR(std::move(attached));
  return lane;
}

Status LaneNet::attach(bool copy_into_arena) {
  const torch::NoGradGuard no_grad;
  const auto adopt = [&](const torch::Tensor& tensor, size_t t) {
    auto ours = view(arena_.tensor(t).data(), arena_.tensors()[t].shape, torch::kFloat32);
    if (copy_into_arena) ours.copy_(tensor);
    tensor.set_data(ours);
  };
  for (auto& item : net_->named_parameters()) {
    size_t t = 0;
    const auto* spec = arena_.find(item.key(), &t);
    MUSTER_CHECK(spec != nullptr, "the arena was made for another model");
    adopt(item.value(), t);
    const bool train = sum_ != nullptr && spec->info.role == optim::Role::kWeight;
    item.value().requires_grad_(train);
    if (train) {
      torch::autograd::impl::set_post_acc_grad_hooks(item.value(),
                                                     std::make_unique<GradientHook>(*this, t));
    }
  }
  for (const auto& module : net_->modules()) {
    auto* layer = dynamic_cast<model::StreamsGradient*>(module.get());
    if (layer == nullptr || sum_ == nullptr) continue;
    for (size_t t = 0; t < arena_.tensors().size(); ++t) {
      if (layer->weight().data_ptr() != arena_.tensor(t).data()) continue;
      if (!layer->weight().requires_grad()) continue;
      sinks_.push_back(std::make_unique<TensorSink>(*this, t, layer->weight()));
      layer->stream_to(sinks_.back().get());
    }
  }
  for (auto& statistic : model::collect_statistics(*net_)) {
    size_t t = 0;
    const auto* spec = arena_.find(statistic.name, &t);
    MUSTER_CHECK(spec != nullptr, "the arena was made for another model");
    adopt(statistic.running, t);
    if (spec->info.role == optim::Role::kStatistic) statistics_.emplace_back(t, statistic.latest);
  }
  return {};
}

// The module is the program's and lives on: with weights of its own again, and without hooks.
void LaneNet::detach() {
  const torch::NoGradGuard no_grad;
  for (auto& item : net_->named_parameters()) {
    item.value().set_data(item.value().clone());
    torch::autograd::impl::set_post_acc_grad_hooks(item.value(), nullptr);
  }
  for (const auto& module : net_->modules()) {
    if (auto* layer = dynamic_cast<model::StreamsGradient*>(module.get()))
      layer->stream_to(nullptr);
  }
  for (const auto& statistic : model::collect_statistics(*net_)) {
    statistic.running.set_data(statistic.running.clone());
  }
}

torch::Tensor LaneNet::forward(const data::Batch& batch, const data::Schema& schema) {
  const Autocast autocast(plan_.bf16);
  const auto input =
      view(batch.inputs.data(), batched(batch.count, schema.input_shape), to_torch(schema.input));
  return net_->forward(input);
}

model::ComputesLoss::Outcome LaneNet::forward_with_loss(const data::Batch& batch) {
  const data::Schema& schema = plan_.schema;
  const auto target = target_of(batch, schema);
  model::ComputesLoss::Outcome outcome;
  if (plan_.loss.compute) {
    outcome.output = forward(batch, schema).to(torch::kFloat32);
    outcome.loss = plan_.loss.compute(outcome.output, target);
    return outcome;
  }
  auto* net = dynamic_cast<model::ComputesLoss*>(net_.get());
  MUSTER_CHECK(net != nullptr, "find_loss() has seen that the net computes it");
  const Autocast autocast(plan_.bf16);
  const auto input =
      view(batch.inputs.data(), batched(batch.count, schema.input_shape), to_torch(schema.input));
  outcome = net->forward_with_loss(input, target);
  if (outcome.output.defined()) outcome.output = outcome.output.to(torch::kFloat32);
  outcome.loss = outcome.loss.to(torch::kFloat32);
  return outcome;
}

void LaneNet::check_gradient_is_wanted() const {
  if (plan_.own == nullptr || plan_.own->takes_gradients) return;
  throw std::logic_error(
      "a backward pass reached the adopted module outside of Lane::backward; add the losses, or "
      "detach what is not to be trained");
}

void LaneNet::take_gradient(size_t tensor, const torch::Tensor& parameter) {
  if (!parameter.grad().defined()) return;  // it was streamed
  check_gradient_is_wanted();
  const auto gradient = parameter.grad().contiguous();
  sum_->add(static_cast<int>(context_->lane), tensor, gradient.const_data_ptr<float>());
  parameter.mutable_grad().reset();
}

// A few hundred nodes, in microseconds; nets without a layer that streams do not even look.
void LaneNet::count_uses(const torch::Tensor& loss) {
  using torch::autograd::Node;
  if (sinks_.empty() || loss.grad_fn() == nullptr) return;
  // Of the weights that may be streamed. (Which kind of pointer depends on libtorch's version.)
  std::vector<decltype(torch::autograd::impl::grad_accumulator(loss))> leaves;
  std::unordered_map<const Node*, int> uses;
  for (const auto& sink : sinks_) {
    leaves.push_back(torch::autograd::impl::grad_accumulator(sink->weight()));
    uses[leaves.back().get()] = 0;
  }
  std::unordered_set<const Node*> known = {loss.grad_fn().get()};
  std::vector<const Node*> open = {loss.grad_fn().get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) {
      if (const auto leaf = uses.find(edge.function.get()); leaf != uses.end()) {
        ++leaf->second;
      } else if (edge.is_valid() && known.insert(edge.function.get()).second) {
        open.push_back(edge.function.get());
      }
    }
  }
  for (size_t i = 0; i < sinks_.size(); ++i) sinks_[i]->set_uses(uses[leaves[i].get()]);
}

Result<double> LaneNet::train(int64_t step, int lane, const data::Batch& batch, float weight) {
  context_->step = step;
  context_->lane = lane;
  if (plan_.own != nullptr) {
    MUSTER_TRY(const double loss, plan_.own->run({step, lane, batch.samples, weight}));
    add_statistics(lane, weight);
    return loss;
  }
  return guarded("training the model", [&]() -> double {
    const double loss = forward_backward(batch, weight);
    add_statistics(lane, weight);
    return loss;
  });
}

double LaneNet::forward_backward(const data::Batch& batch, float weight) {
  net_->train();
  const auto loss = forward_with_loss(batch).loss;
  count_uses(loss);
  loss.backward(torch::full({}, weight));
  return loss.item<float>();
}

void LaneNet::add_statistics(int lane, float weight) {
  for (const auto& [t, latest] : statistics_) {
    const float* values = latest.const_data_ptr<float>();
    scratch_.resize(static_cast<size_t>(latest.numel()));
    for (size_t i = 0; i < scratch_.size(); ++i) scratch_[i] = values[i] * weight;
    sum_->add(lane, t, scratch_.data());
  }
}

Status LaneNet::lanes_over(int64_t step) {
  return plan_.own != nullptr ? plan_.own->over(step) : Status();
}

Status LaneNet::try_training(uint64_t samples) {
  const auto doing =
      fmt::format("training the model on {} sample{} per lane", samples, samples == 1 ? "" : "s");
  MUSTER_TRY(const auto output, guarded(doing, [&] {
               const torch::NoGradGuard no_grad;
               const Autocast autocast(plan_.bf16);
               net_->train();
               return net_->forward(torch::zeros(batched(samples, plan_.schema.input_shape),
                                                 to_torch(plan_.schema.input)));
             }));
  (void)output;
  return {};
}

Status LaneNet::check_samples(uint64_t samples) const {
  const auto* from_file = dynamic_cast<const model::Pt2Net*>(net_.get());
  return from_file != nullptr ? from_file->check_samples(static_cast<int64_t>(samples)) : Status();
}

Status LaneNet::check_generator(const model::GeneratorWatch& watch) const {
  if (!watch.moved() || net_->generator_is_seeded()) return {};
  return Error(ErrorKind::kJob,
               "the model or its loss draws random numbers from torch's global generator, whose "
               "numbers depend on what else the process computes; use muster::model::Dropout, or "
               "numbers of RandomStream (muster/base/random.h) for the lane's seed, step and lane");
}

Result<LaneNet::Evaluation> LaneNet::evaluate(const data::Batch& batch) {
  return guarded("evaluating the model", [&] {
    const torch::NoGradGuard no_grad;
    net_->eval();
    context_->step = arena_.counters().step;  // rows as they are after so many
    const auto [output, loss] = forward_with_loss(batch);
    const auto target = target_of(batch, plan_.schema);
    Evaluation result;
    result.samples = static_cast<double>(batch.count);
    result.loss = loss.item<float>() * result.samples;
    result.bins.resize(plan_.loss.bins());
    std::span<double> bins = result.bins;
    for (const auto& metric : plan_.loss.metrics) {
      const bool has_bins = metric.bins > 0;
      if (has_bins) metric.collect(output, target, bins.first(metric.bins));
      bins = bins.subspan(metric.bins);
      result.metrics.push_back(has_bins ? std::pair(0.0, 0.0) : metric.measure(output, target));
    }
    return result;
  });
}

Result<torch::Tensor> LaneNet::predict(const data::Batch& batch, const data::Schema& schema) {
  return guarded("running the model", [&] {
    const torch::NoGradGuard no_grad;
    net_->eval();
    context_->step = arena_.counters().step;
    return forward(batch, schema).to(torch::kFloat32);
  });
}

Result<torch::Tensor> LaneNet::features(const data::Batch& batch, const std::string& layer) {
  MUSTER_TRY(auto output, guarded("running the model", [&] {
               const torch::NoGradGuard no_grad;
               net_->eval();
               context_->step = arena_.counters().step;
               return model::output_of_layer(*net_, layer, [&] { forward(batch, plan_.schema); });
             }));
  return output;
}

}  // namespace muster::train
