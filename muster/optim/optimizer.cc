#include "muster/optim/optimizer.h"

#include <cmath>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/optim/kinds.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

using config::OptimizerOptions;

struct Kind {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions&);
};
constexpr Kind kKinds[] = {{"adagrad", make_adagrad}, {"adam", make_adam}, {"adamw", make_adamw},
                           {"lamb", make_lamb},       {"lars", make_lars}, {"muon", make_muon},
                           {"rmsprop", make_rmsprop}, {"sgd", make_sgd}};

struct RunningMean {
  static constexpr int kStates = 0;
  float keep, take;
  MUSTER_ALWAYS_INLINE void operator()(float& mean, float batch) const {
    mean = keep * mean + take * batch;
  }
};

Status check_options(const OptimizerOptions& o) {
  const auto at_least_0 = [](const char* name, double value) -> Status {
    if (value >= 0 && std::isfinite(value)) return {};
    return Error(ErrorKind::kJob, "optimizer.{} is {}; it must be 0 or more", name, value);
  };
  const auto below_1 = [](const char* name, double value) -> Status {
    if (value >= 0 && value < 1) return {};
    return Error(ErrorKind::kJob, "optimizer.{} is {}; it must be 0 or more and below 1", name,
                 value);
  };
  MUSTER_RETURN_IF_ERROR(at_least_0("lr", o.lr));
  MUSTER_RETURN_IF_ERROR(below_1("momentum", o.momentum));
  MUSTER_RETURN_IF_ERROR(below_1("dampening", o.dampening));
  MUSTER_RETURN_IF_ERROR(below_1("beta1", o.beta1));
  MUSTER_RETURN_IF_ERROR(below_1("beta2", o.beta2));
  MUSTER_RETURN_IF_ERROR(below_1("alpha", o.alpha));
  MUSTER_RETURN_IF_ERROR(at_least_0("eps", o.eps));
  MUSTER_RETURN_IF_ERROR(at_least_0("weight_decay", o.weight_decay));
  MUSTER_RETURN_IF_ERROR(at_least_0("trust", o.trust));
  MUSTER_RETURN_IF_ERROR(at_least_0("clip.value", o.clip.value));
  MUSTER_RETURN_IF_ERROR(at_least_0("clip.norm", o.clip.norm));
  if (o.decay_on != "all" && o.decay_on != "matrices") {
    return Error(ErrorKind::kJob, "optimizer.decay_on is '{}'; it must be all or matrices",
                 o.decay_on);
  }
  if (o.kind == "muon" && o.momentum == 0) {
    return Error(ErrorKind::kJob,
                 "optimizer.kind muon needs an optimizer.momentum above 0; 0.95 is usual");
  }
  const bool can_look_ahead = o.kind == "sgd" || o.kind == "muon";
  if (o.nesterov && (!can_look_ahead || o.momentum == 0 || o.dampening != 0)) {
    return Error(
        ErrorKind::kJob,
        "optimizer.nesterov needs kind sgd or muon, a momentum above 0 and a dampening of 0");
  }
  return {};
}

}  // namespace

bool Optimizer::decays(const TensorInfo& info) const {
  return options_.decay_on == "all" || info.dims >= 2;
}

Norms Optimizer::measure(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                         Isa isa) const {
  MUSTER_CHECK(block.weights.size() == block.gradient.size(), "a block is of one size");
  if (info.role != Role::kWeight) return {};
  return measure_weights(block, info, step, isa);
}

bool Optimizer::takes_matrix(const TensorInfo&) const { return false; }

void Optimizer::accumulate(const BlockView&, const StepScalars&, std::span<float>, Isa) const {
  MUSTER_CHECK(false, "this optimizer takes no matrices");
}

void Optimizer::follow(const BlockView&, const TensorInfo&, const StepScalars&, Isa) const {
  MUSTER_CHECK(false, "this optimizer takes no matrices");
}

Norms Optimizer::measure_weights(const BlockView&, const TensorInfo&, const StepScalars&,
                                 Isa) const {
  return {};
}

void Optimizer::update(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                       const Norms& tensor, Isa isa) const {
  MUSTER_CHECK(block.weights.size() == block.gradient.size(), "a block is of one size");
  switch (info.role) {
    case Role::kWeight:
      return update_weights(block, info, step, tensor, isa);
    case Role::kFrozen:
      return;
    case Role::kStatistic:
      return run_pass(
          isa,
          RunningMean{static_cast<float>(1 - info.momentum), static_cast<float>(info.momentum)},
          Clip(0, 1), block);
  }
}

bool is_square(std::string_view state) {
  return state == "exp_avg_sq" || state == "square_avg" || state == "sum";
}

std::vector<std::string> optimizer_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options) {
  for (const Kind& kind : kKinds) {
    if (options.kind != kind.name) continue;
    MUSTER_RETURN_IF_ERROR(check_options(options));
    return kind.make(options);
  }
  const std::vector<std::string> kinds = optimizer_kinds();
  return Error(ErrorKind::kJob, "optimizer.kind is '{}'{}; it must be {}", options.kind,
               did_you_mean(options.kind, kinds), join_words(kinds, "or"));
}

}  // namespace muster::optim
