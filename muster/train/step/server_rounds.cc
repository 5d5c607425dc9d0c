#include "muster/train/step/server_rounds.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/comm/local_group.h"
#include "muster/config/rounds.h"

namespace muster::train {

using namespace std::chrono_literals;

namespace {
constexpr Duration kLookAgain = 500us;  // whether there is a task
}  // namespace

ServerRounds::ServerRounds(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      parts_(parts),
      runner_(make_task_runner(job, parts)),
      alone_(comm::solo_group("this worker")),
      group_(alone_.get()),
      committer_(0, 0),
      weights_(parts.arena->layout().block_elements()) {}

void ServerRounds::assign(std::vector<int> /*units*/, comm::Group* group, Duration timeout) {
  parts_.tasks->leave();
  group_ = group != nullptr ? group : alone_.get();
  timeout_ = timeout;
}

void ServerRounds::set_vitals(const Vitals* vitals) {
  vitals_ = vitals;
  parts_.lanes->set_vitals(vitals);
}

void ServerRounds::show_weights() {
  std::ranges::copy(parts_.arena->weights(), parts_.work->weights().begin());
}

Result<uint64_t> ServerRounds::recompute(int /*lane*/) {
  return Error(ErrorKind::kInternal, "what a lane computes is not the same each time");
}

Result<bool> ServerRounds::apply_message(std::span<const uint8_t> /*message*/) {
  return Error(ErrorKind::kInternal, "the commit of a round is taken over with the state");
}

Result<StepReport> ServerRounds::run(const std::function<CommitFlags()>& flags) {
  Counters& counters = parts_.arena->counters();
  flip_point(parts_.arena->bytes());
  parts_.auditor->look_at_counters();
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  parts_.auditor->begin_step(/*exact=*/false, /*last=*/false);
  int64_t steps = job_.sync.period;
  const int64_t total = parts_.lanes->total_steps();
  if (total > 0) steps = std::min(steps, total - counters.step);
  parts_.tasks->set_era(counters.era);
  runner_->take_frozen();

  MUSTER_RETURN_IF_ERROR(check_whole_tasks());
  MUSTER_RETURN_IF_ERROR(begin_round(tasks_of(counters.step), tasks_of(counters.step + steps)));
  MUSTER_RETURN_IF_ERROR(run_tasks(flags));
  std::vector<ps::TaskResult> results;
  {
    const WaitingForPeers waiting(*vitals_);
    MUSTER_TRY(results, parts_.tasks->close(weights_));
  }
  fault_point(FaultPoint::kBeforeCommit);
  committer_.begin();
  MUSTER_TRY(const bool agreed, committer_.exchange(flags ? flags() : CommitFlags{},
                                                    *parts_.auditor, *group_, timeout_, *vitals_));
  (void)agreed;  // the auditor knows
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  fault_point(FaultPoint::kAfterCommit);
  // It may have been cut short.
  const int64_t end = parts_.tasks->round_end() / job_.lanes * config::steps_of_task(job_.sync);
  return finish(results, std::min(steps, end - counters.step));
}

int64_t ServerRounds::tasks_of(int64_t steps) const {
  return config::tasks_of(job_.sync, job_.lanes, steps);
}

// Only the end of a job is in the middle of a task: one that had more steps then would have others.
Status ServerRounds::check_whole_tasks() const {
  const int64_t step = parts_.arena->counters().step;
  const int64_t of_task = config::steps_of_task(job_.sync);
  if (step % of_task == 0) return {};
  return Error(
      ErrorKind::kJob,
      "the job has ended after {} steps, and it can be continued only after a multiple of {}, "
      "which is {}; train it anew with more steps",
      step, config::is_elastic(job_.sync) ? "sync.fetch" : "sync.push_every", of_task);
}

// When all have committed the round before: else somebody could be the only one who knows of the
// commit, and be lost, while the servers have gone on.
Status ServerRounds::begin_round(int64_t first, int64_t end) {
  const WaitingForPeers waiting(*vitals_);
  const comm::OpOptions options{.timeout = timeout_};
  MUSTER_RETURN_IF_ERROR(group_->barrier(options));
  uint64_t token = 0;
  if (group_->rank() == 0) {
    MUSTER_TRY(token, parts_.tasks->open(first, end));
  }
  MUSTER_RETURN_IF_ERROR(group_->broadcast(std::span(&token, 1), 0, options));
  parts_.tasks->enter(token, group_->rank());
  return {};
}

// A round may take long, and whoever ends the job does not wait for it.
Status ServerRounds::cut_if_due(const std::function<CommitFlags()>& flags) {
  if (cut_ || !flags) return {};
  const CommitFlags wanted = flags();
  if (wanted.stop == 0 && wanted.time_over == 0) return {};
  cut_ = true;
  return parts_.tasks->cut();
}

// All of it is one wait: else nobody would notice that the others wait for one that hangs.
Result<std::optional<TaskRows::Task>> ServerRounds::wait_for_task(
    const ps::TaskResult* done, const std::function<CommitFlags()>& flags) {
  const WaitingForPeers waiting(*vitals_);
  while (true) {
    MUSTER_RETURN_IF_ERROR(cut_if_due(flags));
    MUSTER_TRY(const auto task, parts_.tasks->next(std::exchange(done, nullptr)));
    if (!task && parts_.tasks->round_is_over()) return task;
    // Whoever is lost may have a task that the others wait for.
    if (group_->failed()) return Error(ErrorKind::kInternal, "the group failed during the round");
    if (task) return task;
    std::this_thread::sleep_for(kLookAgain);
  }
}

Status ServerRounds::run_tasks(const std::function<CommitFlags()>& flags) {
  cut_ = false;
  std::optional<ps::TaskResult> result;
  double spent = 0;
  int64_t computed = 0;
  while (true) {
    MUSTER_TRY(const auto task, wait_for_task(result ? &*result : nullptr, flags));
    if (!task) break;
    const auto begin = std::chrono::steady_clock::now();
    MUSTER_TRY(result, runner_->run(*task));
    spent += seconds(std::chrono::steady_clock::now() - begin);
    ++computed;
    fault_point(FaultPoint::kRound);
  }
  if (computed > 0) {
    const int64_t steps = computed * config::steps_of_task(job_.sync);
    lane_seconds_ = spent / static_cast<double>(steps);
  }
  return {};
}

Result<StepReport> ServerRounds::finish(const std::vector<ps::TaskResult>& results, int64_t steps) {
  Arena& arena = *parts_.arena;
  Counters& counters = arena.counters();
  MUSTER_CHECK(results.size() ==
                   static_cast<size_t>(tasks_of(counters.step + steps) - tasks_of(counters.step)),
               "a result for each task");
  StepReport report;
  report.steps = steps;
  for (const auto& result : results) report.samples += result.samples;
  for (const auto& result : results) {
    report.loss +=
        result.loss * static_cast<double>(result.samples) / static_cast<double>(report.samples);
    counters.ledger = hash64(&result.used, sizeof(result.used), counters.ledger);
  }
  std::ranges::copy(weights_, arena.weights().begin());
  counters.step += steps;
  counters.samples += report.samples;
  report.lr = runner_->lr_of(counters.step - 1);
  counters.last = {};
  counters.last.loss = report.loss;
  counters.last.lr = report.lr;
  counters.last.samples = report.samples;
  counters.last.steps = steps;
  arena.seal_counters();
  return report;
}

}  // namespace muster::train
