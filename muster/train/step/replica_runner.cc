#include "muster/train/step/replica_runner.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "muster/base/check.h"
#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

config::Job inner_job(config::Job job) {
  const std::string strategy = job.sync.strategy;
  job.sync = {};
  job.audit.every = 0;
  job.audit.lanes = 0;
  // Whether the job goes on is decided by all workers together, when the round is committed.
  job.not_finite = "skip";
  // A gradient that is sent is clipped when those of all replicas have been added up.
  if (sync::sends_gradients(strategy)) job.optimizer.clip = {};
  return job;
}

// Copies gradients into a state, and changes no weights.
class GradientTap final : public optim::Optimizer {
 public:
  explicit GradientTap(size_t state) : Optimizer({}), state_(state) {}
  std::vector<std::string> state_names() const override { return {}; }

 protected:
  void update_weights(const optim::BlockView& block, const optim::TensorInfo&,
                      const optim::StepScalars&, const optim::Norms&, Isa) const override {
    std::ranges::copy(block.gradient, block.states[state_]);
  }

 private:
  const size_t state_;
};

std::unique_ptr<optim::Optimizer> make_tap(const config::Job& job, const Arena& work) {
  if (!sync::sends_gradients(job.sync.strategy)) return nullptr;
  return std::make_unique<GradientTap>(work.optimizer_states() - 1);
}

}  // namespace

ReplicaRunner::ReplicaRunner(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      inner_job_(inner_job(job)),
      parts_(parts),
      tap_(make_tap(job, *parts.work)),
      auditor_(inner_job_, *parts.work),
      lockstep_(inner_job_, {.arena = parts.work,
                             .sum = parts.sum,
                             .team = parts.team,
                             .lanes = parts.lanes,
                             .optimizer = inner_optimizer(),
                             .auditor = &auditor_,
                             .memory = parts.memory,
                             .lane_sums = {}}) {}

void ReplicaRunner::set_vitals(const Vitals* vitals) {
  vitals_ = vitals;
  lockstep_.set_vitals(vitals);
}

void ReplicaRunner::set_site(comm::Group* site) {
  site_ = site;
  site_rank_ = site != nullptr ? site->rank() : 0;
  site_size_ = site != nullptr ? site->size() : 1;
}

std::vector<int> ReplicaRunner::own_lanes(int replica) const {
  auto lanes = sync::lanes_of(job_, {&replica, 1});
  const auto own = comm::part_of(lanes.size(), site_rank_, site_size_);
  const auto begin = lanes.begin() + static_cast<std::ptrdiff_t>(own.begin);
  return {begin, begin + static_cast<std::ptrdiff_t>(own.size)};
}

void ReplicaRunner::begin(int number, int64_t step, int64_t optimizer_begin) {
  parts_.work->counters() = parts_.arena->counters();
  parts_.work->counters().step = step;
  parts_.work->seal_counters();
  lockstep_.forget();
  lockstep_.begin_optimizer_at(optimizer_begin);
  under_way_ = number;
  next_ = step;
  optimizer_begin_ = optimizer_begin;
}

Status ReplicaRunner::run_to(const Way& way, Record& record) {
  MUSTER_CHECK(under_way_ >= 0, "no replica has begun");
  if (site_ != nullptr) {
    Order order{.replica = under_way_,
                .step = next_,
                .end = way.end,
                .optimizer_begin = optimizer_begin_,
                .tell_state = way.tell_state ? 1 : 0};
    MUSTER_RETURN_IF_ERROR(pass_on(order, way.timeout));
    MUSTER_RETURN_IF_ERROR(pass_on_state(way.tell_state, way.timeout));
  }
  return run_steps(way, record);
}

Status ReplicaRunner::dismiss(Duration timeout) {
  Order over;
  return site_ != nullptr ? pass_on(over, timeout) : Status();
}

Status ReplicaRunner::help(const comm::Group& group, Duration timeout) {
  auto helped = follow_orders(group, timeout);
  // What was under way is the leader's: should this worker be the next one, it begins anew.
  give_up();
  return helped;
}

Status ReplicaRunner::follow_orders(const comm::Group& group, Duration timeout) {
  while (true) {
    Order order;
    MUSTER_RETURN_IF_ERROR(pass_on(order, timeout));
    if (order.replica < 0) return {};
    if (order.replica >= job_.sync.replicas || order.end <= order.step) {
      return Error(ErrorKind::kInternal,
                   "the leader of the site names steps {} to {} of replica {}", order.step,
                   order.end, order.replica);
    }
    begin(static_cast<int>(order.replica), order.step, order.optimizer_begin);
    MUSTER_RETURN_IF_ERROR(pass_on_state(order.tell_state != 0, timeout));

    helped_.results.resize(static_cast<size_t>((order.end - order.step) * job_.lanes));
    MUSTER_RETURN_IF_ERROR(run_steps(
        {.end = order.end, .first = order.step, .group = group, .timeout = timeout}, helped_));
  }
}

Status ReplicaRunner::pass_on(Order& order, Duration timeout) {
  return pass_on(std::as_writable_bytes(std::span(&order, 1)), timeout);
}

Status ReplicaRunner::pass_on_state(bool whole, Duration timeout) {
  Arena& work = *parts_.work;
  // The step may have to be computed again, with other scales.
  MUSTER_RETURN_IF_ERROR(pass_on(std::as_writable_bytes(std::span(&work.counters(), 1)), timeout));
  work.seal_counters();
  MUSTER_RETURN_IF_ERROR(pass_on(std::as_writable_bytes(work.exponents()), timeout));
  if (!whole) return {};

  MUSTER_RETURN_IF_ERROR(pass_on(std::as_writable_bytes(work.weights()), timeout));
  for (size_t s = 0; s < work.optimizer_states(); ++s) {
    MUSTER_RETURN_IF_ERROR(pass_on(std::as_writable_bytes(work.optimizer_state(s)), timeout));
  }
  return {};
}

// What rank 0 has is everywhere.
Status ReplicaRunner::pass_on(std::span<std::byte> bytes, Duration timeout) {
  constexpr size_t kPart = 4 << 20;
  const WaitingForPeers waiting(*vitals_);
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(kPart, bytes.size()));
    MUSTER_RETURN_IF_ERROR(site_->broadcast(part, 0, {.timeout = timeout}));
    vitals_->note_progress();
    bytes = bytes.subspan(part.size());
  }
  return {};
}

Status ReplicaRunner::run_steps(const Way& way, Record& record) {
  const auto lanes = sync::lanes_of(job_, {&under_way_, 1});
  lockstep_.assign(own_lanes(under_way_), site_, way.timeout);
  parts_.lanes->take_mean_over(lanes);
  for (; next_ < way.end; ++next_) {
    // A round is long: whoever is lost meanwhile must be replaced soon.
    if (way.group.failed()) {
      return Error(ErrorKind::kInternal, "the group failed during the round");
    }
    // A short last step may have no samples for this replica; then it stays as it is.
    if (parts_.lanes->samples_of_mean(next_) == 0) {
      if (tap_ != nullptr) {
        std::ranges::fill(parts_.work->optimizer_state(parts_.work->optimizer_states() - 1), 0.0f);
      }
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    MUSTER_RETURN_IF_ERROR(run_step(lanes, (next_ - way.first) * job_.lanes, record));
    record.seconds += seconds(std::chrono::steady_clock::now() - begin);
  }
  under_way_ = -1;
  return {};
}

Status ReplicaRunner::run_step(const std::vector<int>& lanes, int64_t at, Record& record) {
  while (true) {
    MUSTER_RETURN_IF_ERROR(lockstep_.compute());
    MUSTER_RETURN_IF_ERROR(lockstep_.commit({}));
    for (const int lane : lanes) {
      record.results[static_cast<size_t>(at + lane)] = lockstep_.agreed_result(lane);
    }
    MUSTER_TRY(const auto report, lockstep_.apply());
    if (report) return {};
  }
}

}  // namespace muster::train
