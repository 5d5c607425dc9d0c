#include "muster/train/session.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "muster/base/thread.h"

namespace muster::train {

Session::Session(config::Job job, const Registries& registries)
    : job_(std::move(job)), registries_(registries) {}

Result<std::unique_ptr<Session>> Session::open(config::Job job, const Registries& registries) {
  if (job.device != "cpu") {
    return Error(ErrorKind::kMachine, "device '{}' is not supported yet; use device: cpu",
                 job.device);
  }
  std::unique_ptr<Session> session(new Session(std::move(job), registries));
  MUSTER_RETURN_IF_ERROR(session->open_data());
  MUSTER_RETURN_IF_ERROR(session->build_nets());
  return session;
}

Status Session::open_data() {
  MUSTER_TRY(train_, registries_.data.open(job_.data.train));
  plan_.models = &registries_.models;
  plan_.options = job_.model;
  plan_.schema = train_->schema();
  plan_.seed = job_.seed;
  plan_.bf16 = job_.precision == "bf16";
  MUSTER_TRY(plan_.loss, model::find_loss(registries_.models, job_.model, plan_.schema));

  const auto batch = static_cast<double>(job_.batch);
  double samples = std::numeric_limits<double>::infinity();
  if (job_.passes > 0)
    samples = std::min(samples, job_.passes * static_cast<double>(train_->size()));
  if (job_.steps > 0) samples = std::min(samples, static_cast<double>(job_.steps) * batch);
  if (std::isfinite(samples)) {
    total_samples_ = static_cast<uint64_t>(std::llround(samples));
    total_steps_ = static_cast<int64_t>((total_samples_ + job_.batch - 1) / job_.batch);
  } else {
    total_samples_ = std::numeric_limits<int64_t>::max();  // only time ends it
  }
  return {};
}

Status Session::build_nets() {
  MUSTER_TRY(optimizer_, optim::make_optimizer(job_.optimizer));
  MUSTER_TRY(auto first, build_first_net(plan_));
  MUSTER_RETURN_IF_ERROR(model::check_net(*first.net));
  arena_ = std::make_unique<Arena>(first.tensors, optimizer_->slot_names());
  sum_ = std::make_unique<GradientSum>(arena_->layout(), static_cast<int>(job_.lanes),
                                       static_cast<size_t>(job_.sync.bucket));
  const int wanted = job_.threads > 0 ? static_cast<int>(job_.threads) : usable_cores();
  const int threads = std::clamp(wanted, 1, static_cast<int>(job_.lanes));
  // Bits depend on the order of sums inside an operation: one thread computes each lane, alone.
  team_ = std::make_unique<Team>(threads, [](int) { at::set_num_threads(1); });
  for (int member = 0; member < threads; ++member) {
    MUSTER_TRY(auto net,
               LaneNet::create(plan_, *arena_, sum_.get(), member == 0 ? &first : nullptr));
    nets_.push_back(std::move(net));
  }
  return {};
}

double Session::steps_per_pass() const {
  return static_cast<double>(train_->size()) / static_cast<double>(job_.batch);
}

Status Session::start_loader() {
  data::LoaderPlan plan;
  plan.seed = job_.seed;
  plan.batch = static_cast<uint64_t>(job_.batch);
  plan.lanes = static_cast<int>(job_.lanes);
  plan.total_samples = total_samples_;
  plan.augment = job_.data.augment;
  plan.threads = static_cast<int>(job_.data.loader.threads);
  plan.ahead = static_cast<int>(job_.data.loader.ahead);
  MUSTER_TRY(loader_,
             data::Loader::create(*train_, plan, static_cast<uint64_t>(arena_->counters().step)));
  stepper_ = std::make_unique<Stepper>(
      job_,
      StepParts{arena_.get(), sum_.get(), team_.get(), nets_, loader_.get(), optimizer_.get()},
      total_steps_);
  return {};
}

Result<StepReport> Session::step() {
  if (stepper_ == nullptr) MUSTER_RETURN_IF_ERROR(start_loader());
  return stepper_->run();
}

Result<const data::Dataset*> Session::test_data() {
  if (test_ == nullptr) {
    auto source = job_.data.test;
    // Labels of a test set may not use every class; the model has as many as the training data.
    if (source.classes == 0) source.classes = plan_.schema.classes;
    MUSTER_TRY(test_, registries_.data.open(source));
    const auto& ours = plan_.schema;
    const auto& theirs = test_->schema();
    if (theirs.input_shape != ours.input_shape || theirs.input != ours.input ||
        theirs.target_shape != ours.target_shape || theirs.target != ours.target) {
      return Error(
          ErrorKind::kData,
          "data.test has samples of another shape than data.train; both must come from the "
          "same kind of source");
    }
  }
  return test_.get();
}

Result<EvalReport> Session::evaluate() {
  MUSTER_TRY(const auto* test, test_data());
  return train::evaluate(*test, plan_, *team_, nets_, job_.eval.batch, job_.eval.samples);
}

}  // namespace muster::train
