#include "muster/train/step/server_steps.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/comm/local_group.h"
#include "muster/optim/schedule.h"
#include "muster/sync/recipe.h"

namespace muster::train {

ServerSteps::ServerSteps(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      parts_(parts),
      own_lanes_(static_cast<size_t>(job.lanes)),
      alone_(comm::solo_group("this worker")),
      group_(alone_.get()),
      committer_(0, static_cast<int>(job.lanes)),
      weights_(parts.arena->layout().block_elements()) {
  std::iota(own_lanes_.begin(), own_lanes_.end(), 0);
  gradients_.assign(parts.lane_sums.size(), std::vector<float>(weights_.size()));
  parts_.lanes->set_around(
      {.begin = [this](int member, int64_t step, int lane) { begin_lane(member, step, lane); },
       .end = [this](int member, int64_t step, int lane,
                     LaneResult& result) { return end_lane(member, step, lane, result); }});
}

void ServerSteps::assign(std::vector<int> units, comm::Group* group, Duration timeout) {
  own_lanes_ = sync::lanes_of(job_, units);
  group_ = group != nullptr ? group : alone_.get();
  timeout_ = timeout;
}

void ServerSteps::set_vitals(const Vitals* vitals) {
  vitals_ = vitals;
  parts_.lanes->set_vitals(vitals);
}

double ServerSteps::lr_of(int64_t step) const {
  return optim::learning_rate(job_.optimizer, step, parts_.lanes->total_steps());
}

Result<uint64_t> ServerSteps::recompute(int /*lane*/) {
  return Error(ErrorKind::kInternal, "lanes are not compared");
}

Result<StepReport> ServerSteps::run(const std::function<CommitFlags()>& flags) {
  flip_point(parts_.arena->bytes());
  parts_.auditor->look_at_counters();
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  MUSTER_RETURN_IF_ERROR(compute());
  fault_point(FaultPoint::kBeforeCommit);
  MUSTER_RETURN_IF_ERROR(commit(flags ? flags() : CommitFlags{}));
  if (committer_.message().first_not_finite()) {
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check_not_finite());
  }
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  fault_point(FaultPoint::kAfterCommit);
  MUSTER_TRY(const auto report, apply());
  MUSTER_RETURN_IF_ERROR(publish_rows());
  return report;
}

Status ServerSteps::compute() {
  holds_sums_ = false;
  MUSTER_CHECK(is_complete(), "a step begins with the weights of the step before");
  const Counters& counters = parts_.arena->counters();
  parts_.weights->set_era(counters.era);
  parts_.auditor->begin_step(/*exact=*/false, /*last=*/false);
  MUSTER_RETURN_IF_ERROR(
      parts_.lanes->run(counters.step, own_lanes_, [this] { return group_->failed(); }));
  if (group_->failed()) return Error(ErrorKind::kInternal, "the group failed during the step");
  if (!own_lanes_.empty()) {
    lane_seconds_ = parts_.lanes->seconds() / static_cast<double>(own_lanes_.size());
  }
  const WaitingForPeers waiting(*vitals_);
  MUSTER_RETURN_IF_ERROR(parts_.weights->wait());
  holds_sums_ = true;
  return {};
}

void ServerSteps::begin_lane(int member, int64_t step, int lane) {
  parts_.lane_sums[static_cast<size_t>(member)]->begin(GradientSum::Mode::kNative,
                                                       parts_.arena->exponents(), {&lane, 1}, step);
}

Status ServerSteps::end_lane(int member, int64_t step, int lane, LaneResult& result) {
  GradientSum& sum = *parts_.lane_sums[static_cast<size_t>(member)];
  sum.flush();
  result.not_finite = sum.not_finite(lane);
  if (!result.finite()) return {};  // the commit says so
  auto& gradient = gradients_[static_cast<size_t>(member)];
  std::ranges::fill(gradient, 0.0f);
  const auto blocks = parts_.arena->layout().blocks();
  std::array<float, exact::kBlockSize> scratch;  // NOLINT(*-member-init): written before it is read
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::ranges::copy(sum.read(b, scratch), exact::part(std::span(gradient), blocks[b]).begin());
  }
  return parts_.weights->push(step, lane, gradient, lr_of(step));
}

Status ServerSteps::commit(const CommitFlags& flags) {
  CommitMessage& draft = committer_.begin();
  for (const int lane : own_lanes_) draft.set_lane(lane, parts_.lanes->result(lane));
  MUSTER_TRY(const bool agreed,
             committer_.exchange(flags, *parts_.auditor, *group_, timeout_, *vitals_));
  message_of_.reset();  // that message is gone
  if (!agreed) forget();
  return {};
}

void ServerSteps::forget() {
  holds_sums_ = false;
  message_of_.reset();
}

Result<bool> ServerSteps::apply_message(std::span<const uint8_t> message) {
  committer_.take_over(message);
  if (!is_complete()) {
    MUSTER_RETURN_IF_ERROR(take_weights());
    return true;
  }
  MUSTER_TRY(const auto report, apply());
  (void)report;
  return true;
}

Result<StepReport> ServerSteps::apply() {
  MUSTER_CHECK(holds_sums_, "a commit of what is not on the servers");
  const CommitMessage& message = committer_.message();
  Counters& counters = parts_.arena->counters();
  if (const auto lane = message.first_not_finite()) {
    const auto result = message.lane(*lane);
    return parts_.lanes->explain_not_finite(counters.step, *lane, result,
                                            parts_.arena->tensor_name(result.not_finite),
                                            /*may_skip=*/false);
  }
  StepReport report;
  report.lr = lr_of(counters.step);
  for (int lane = 0; lane < message.lanes(); ++lane) report.samples += message.lane(lane).samples;
  for (int lane = 0; lane < message.lanes(); ++lane) {
    const auto result = message.lane(lane);
    report.loss +=
        result.loss * static_cast<double>(result.samples) / static_cast<double>(report.samples);
    counters.ledger = hash64(&result.used, sizeof(result.used), counters.ledger);
  }
  message_of_ = position();
  counters.step += 1;
  counters.redo.attempt = 0;  // the weights are still to come
  counters.samples += report.samples;
  counters.last = {};
  counters.last.loss = report.loss;
  counters.last.lr = report.lr;
  counters.last.samples = report.samples;
  parts_.arena->seal_counters();
  return report;
}

bool ServerSteps::is_complete() const {
  const Counters& counters = parts_.arena->counters();
  return counters.step == 0 || counters.redo.attempt > 0;
}

// Servers are told of a commit only when every worker knows of it. Otherwise the only one that does
// could be lost behind that, and the others would compute the step again with other weights. They
// are told once more if all have the weights already: the worker that told them may be lost, and
// not every shard has rows that were read since.
Status ServerSteps::publish_rows() {
  const Counters& counters = parts_.arena->counters();
  if (counters.step == 0) return {};
  const bool complete = is_complete();
  const WaitingForPeers waiting(*vitals_);
  if (!complete) MUSTER_RETURN_IF_ERROR(group_->barrier({.timeout = timeout_}));
  if (group_->rank() == 0) {
    parts_.weights->set_era(counters.era);
    MUSTER_RETURN_IF_ERROR(parts_.weights->commit(counters.step - 1));
  }
  return complete ? Status() : take_weights();
}

Status ServerSteps::take_weights() {
  Counters& counters = parts_.arena->counters();
  parts_.weights->set_era(counters.era);
  MUSTER_RETURN_IF_ERROR(parts_.weights->read_weights(counters.step, weights_));
  message_of_ = position();
  std::ranges::copy(weights_, parts_.arena->weights().begin());
  counters.redo.attempt = 1;
  parts_.arena->seal_counters();
  holds_sums_ = false;
  return {};
}

}  // namespace muster::train
