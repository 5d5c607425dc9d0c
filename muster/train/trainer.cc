#include "muster/train/trainer.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "muster/sync/recipe.h"
#include "muster/train/numerics/job_fingerprint.h"

namespace muster::train {

Trainer::Trainer(Session& session, Recorder& recorder, TrainerEnvironment environment,
                 Membership* membership)
    : session_(session),
      recorder_(recorder),
      env_(std::move(environment)),
      membership_(membership),
      restorer_(session, recorder, *env_.files, *env_.log, env_.accept_other_data, env_.copy) {
  const auto& job = session_.job();
  const auto& metrics = session_.plan().loss.metrics;
  best_by_ = !job.best_by.empty() ? job.best_by : metrics.empty() ? "loss" : metrics[0].name;
  for (const auto& metric : metrics) {
    if (metric.name == best_by_) higher_is_better_ = metric.higher_is_better;
  }
  session_.set_on_waiting([this](const std::string& what) {
    recorder_.waiting(what);
    return membership_ != nullptr ? !gave_up_ : env_.stop_signal() == 0;
  });
}

Trainer::~Trainer() {
  over_ = true;
  if (stop_watch_) stop_watch_->join();
  session_.set_on_waiting({});
}

Status Trainer::prepare() {
  MUSTER_RETURN_IF_ERROR(session_.begin_fingerprint());
  return restorer_.newest();
}

double Trainer::elapsed() const {
  return restorer_.seconds_before() + seconds(env_.clock->now() - started_);
}

bool Trainer::is_better(double value) const {
  const auto& counters = session_.arena().counters();
  if (!std::isfinite(value)) return false;
  if (counters.best.step < 0) return true;
  const double gain = higher_is_better_ ? value - counters.best.value : counters.best.value - value;
  return gain > session_.job().early_stop.least;
}

bool Trainer::has_converged() const {
  const auto patience = session_.job().early_stop.patience;
  return patience > 0 && session_.arena().counters().best.stale >= patience;
}

std::optional<EndReason> Trainer::ending() const {
  const int64_t total = session_.total_steps();
  if (total > 0 && session_.arena().counters().step >= total) return EndReason::kDone;
  if (has_converged()) return EndReason::kEarlyStop;
  if (flags_.stop != 0) return EndReason::kSignal;
  if (flags_.time_over != 0) return EndReason::kTime;
  return std::nullopt;
}

Progressed Trainer::progressed() const {
  return train::progressed(session_.arena().counters(), session_.train_samples());
}

int Trainer::requested_signal() {
  const int signal = env_.stop_signal();
  if (signal == 0 || membership_ == nullptr || signal != SIGTERM) return signal;
  membership_->leave();
  return membership_->connected() ? 0 : signal;  // else nobody can let it go
}

CommitFlags Trainer::commit_flags() {
  CommitFlags flags;
  if (membership_ != nullptr) flags.newer_roster = membership_->roster_byte();
  flags.stop = static_cast<uint8_t>(requested_signal());
  if (!recorder_.on()) return flags;  // one clock decides
  const auto& job = session_.job();
  flags.time_over = job.time > 0 && elapsed() >= job.time ? 1 : 0;
  auto at = progressed();
  at.step += 1;
  at.seconds_since = seconds(env_.clock->now() - last_eval_time_);
  const bool timed = job.eval.every.unit == config::Every::Unit::kSeconds;
  flags.evaluate = timed && session_.has_test() && is_due(job.eval.every, at) ? 1 : 0;
  return flags;
}

Result<TrainSummary> Trainer::train() {
  started_ = last_eval_time_ = env_.clock->now();
  Turn turn = Turn::kEnter;
  if (membership_ == nullptr) {
    MUSTER_RETURN_IF_ERROR(recorder_.begin(0));
    turn = Turn::kAdvance;
  } else {
    stop_watch_.emplace("stop-watch", [this] { watch_for_stop(); });
  }
  while (turn != Turn::kEnd) {
    auto next = turn == Turn::kEnter ? enter() : advance();
    if (!next.ok() && was_interrupted(next.error())) {
      flags_ = commit_flags();
      next = conclude(EndReason::kSignal);
    }
    if (!next.ok()) {
      if (membership_ == nullptr || !has_lost_group(next.error())) return std::move(next).error();
      next = Turn::kEnter;
    }
    turn = *next;
  }
  over_ = true;
  recorder_.report_data();
  recorder_.end();
  if (not_sent_) return *std::move(not_sent_);
  return summary(reason_);
}

// Told to stop while it waited for data. The step, or the evaluation, has changed nothing, so this
// is still the boundary before it.
bool Trainer::was_interrupted(const Error& error) const {
  return membership_ == nullptr && error.kind() == ErrorKind::kInterrupted &&
         env_.stop_signal() != 0;
}

// Also if it does not know yet: if others have gone on with the rows, they have given this worker
// up. It joins them again.
bool Trainer::has_lost_group(const Error& error) {
  StepRows* const rows = session_.rows();
  if (rows != nullptr && rows->take_overtaken()) membership_->abort(error.message());
  return membership_->lost(error);
}

// Told to stop, all workers end at the next step boundary. But a worker that hangs may never let
// the others come to it; then each leaves with what it has. Also wakes one that waits for a roster.
void Trainer::watch_for_stop() {
  constexpr auto kLook = std::chrono::milliseconds(20);
  std::optional<Moment> told;
  while (!over_) {
    std::this_thread::sleep_for(kLook);
    if (!told && env_.stop_signal() == SIGINT) told = env_.clock->now();
    if (!told || env_.clock->now() - *told < env_.patience) continue;
    gave_up_ = true;
    if (env_.copy.reader != nullptr) env_.copy.reader->stop();
    membership_->abort("told to stop, and the step does not end");
    return;
  }
}

Membership::Sources Trainer::sources() {
  return {
      .restorable =
          [this](const roster::Rollback& known, bool repair) {
            return restorer_.restorable(
                {.known = known,
                 .is_first = repair,
                 .is_behind = !membership_->has_state() || membership_->was_removed()});
          },
      .restore =
          [this](uint64_t step) { return restorer_.restore(step, membership_->roster().number); },
      // Without a group there is nobody to come to a boundary with.
      .give_up =
          [this] {
            const int signal = env_.stop_signal();
            if (signal == SIGTERM) membership_->leave();
            return gave_up_ || signal == SIGINT || (signal == SIGTERM && !membership_->connected());
          },
      .roll_back = [this](const std::string& what, const roster::Rollback* rollback,
                          bool keep) { return roll_back(what, rollback, keep); },
  };
}

Result<Trainer::Turn> Trainer::enter() {
  if (gave_up_) return give_up();
  MUSTER_TRY(const auto entry, membership_->enter(sources()));
  switch (entry.how) {
    case Membership::Entry::How::kReleased:
      reason_ = EndReason::kLeft;
      return Turn::kEnd;
    case Membership::Entry::How::kFinished:
      reason_ = ending().value_or(EndReason::kLeft);
      return Turn::kEnd;
    case Membership::Entry::How::kGaveUp:
      return give_up();
    case Membership::Entry::How::kIn:
      MUSTER_RETURN_IF_ERROR(take_up(entry));
      return Turn::kAdvance;
  }
  return Turn::kEnd;
}

// All members are at one position. Come to one mind about what is to be done there, and record it.
Status Trainer::take_up(const Membership::Entry& entry) {
  const auto& counters = session_.arena().counters();
  // Others may have recorded meanwhile.
  if (entry.other_state || entry.rejoined) recorder_.end();
  recorder_.set_rollback(entry.rollback);
  if (entry.rolled) {
    flags_ = session_.strategy().agreed_flags();
    flags_step_ = counters.step;
  }
  if (flags_step_ != counters.step) flags_.evaluate = 0;
  // Of a commit that the others have not seen: they may be in the middle of an asynchronous round.
  if (session_.tasks() != nullptr && (entry.rejoined || entry.other_state)) flags_ = {};
  std::array<uint8_t, 3> flags = {flags_.evaluate, flags_.time_over, flags_.stop};
  MUSTER_RETURN_IF_ERROR(membership_->combine(flags));
  flags_ = {0, flags[0], flags[1], flags[2]};
  flags_step_ = counters.step;

  if (membership_->rank() != 0) {
    recorder_.end();
  } else {
    MUSTER_RETURN_IF_ERROR(recorder_.begin(membership_->roster().number));
  }
  announce_roster();
  // Before anything is saved: strategies know it only from their next step or round on.
  if (session_.rows() != nullptr) session_.rows()->set_era(counters.era);
  // All are at this step, and have said so.
  MUSTER_RETURN_IF_ERROR(session_.publish_rows());
  if (!session_.job().track.links || counters.step > 0 || membership_->size() < 2) return {};
  MUSTER_TRY(const auto links, membership_->measure_links());
  return recorder_.links(links);
}

void Trainer::announce_roster() {
  const auto& roster = membership_->roster();
  std::vector<roster::WorkerKey> members;
  for (const auto& member : roster.members) members.push_back(member.key);
  const bool first = announced_.empty();
  if (members == announced_) return;
  announced_ = std::move(members);
  if (first) {
    recorder_.message(fmt::format("{} worker{}, {} {}", membership_->size(),
                                  membership_->size() == 1 ? "" : "s",
                                  sync::units_of(session_.job()), sync::unit_name(session_.job())));
    return;
  }
  recorder_.message(fmt::format("roster {}: {}; {} worker{}", roster::sequence_of(roster.number),
                                roster.reason, membership_->size(),
                                membership_->size() == 1 ? "" : "s"));
}

Result<Trainer::Turn> Trainer::advance() {
  if (membership_ == nullptr) {
    flags_ = commit_flags();  // of this boundary: there is nobody to agree with
    flags_step_ = session_.arena().counters().step;
  }
  MUSTER_RETURN_IF_ERROR(settle());
  if (const auto reason = ending()) return conclude(*reason);
  // The last one does not wait for others to take over: they will find what it saves.
  if (membership_ != nullptr && membership_->size() == 1 && env_.stop_signal() == SIGTERM)
    return give_up();
  return step();
}

// Whether rows, if there are any, are those of this step, and weights too. If a group broke in the
// middle of an asynchronous round, or before weights were read, they are not, and a checkpoint
// waits.
Result<bool> Trainer::rows_are_here() {
  if (session_.rows() == nullptr) return true;
  if (!session_.strategy().is_complete()) return false;
  return session_.rows()->is_at(session_.arena().counters().step);
}

// What is due at this boundary and not done yet.
Status Trainer::settle() {
  const auto& job = session_.job();
  const auto& counters = session_.arena().counters();
  if (counters.step == 0) return {};
  auto at = progressed();
  if (session_.has_test() && counters.evaluation.step != counters.step) {
    const auto reason = ending();
    // Whoever is told to leave wants to be gone: evaluate only at a real end.
    const bool last = reason && *reason != EndReason::kSignal;
    if (last || flags_.evaluate != 0 || is_due(job.eval.every, at)) {
      MUSTER_RETURN_IF_ERROR(evaluate());
    }
  }
  if (!recorder_.on() || recorder_.saved()) return {};
  const bool best = counters.best.step == counters.step;
  at.seconds_since = seconds(env_.clock->now() - recorder_.last_save());
  if (!is_due(job.checkpoint.every, at) && !(best && job.checkpoint.best)) return {};
  MUSTER_TRY(const bool can_save, rows_are_here());
  if (!can_save) return {};
  MUSTER_RETURN_IF_ERROR(recorder_.save(best, elapsed()));
  // Whoever takes over in the middle of the next round could not save it again.
  return best && session_.tasks() != nullptr ? recorder_.flush() : Status();
}

Result<Trainer::Turn> Trainer::step() {
  const Moment before = env_.clock->now();
  if (membership_ != nullptr) membership_->take_waited();  // outside of steps it does not count
  const auto report = session_.step([this] { return commit_flags(); });
  if (!report.ok()) {
    if (membership_ == nullptr || !session_.auditor().has_finding()) return report.error();
    return settle_difference();
  }
  MUSTER_RETURN_IF_ERROR(
      recorder_.step({.seconds = seconds(env_.clock->now() - before),
                      .when = env_.clock->wall(),
                      .waited = membership_ != nullptr ? membership_->take_waited() : 0}));
  if (membership_ == nullptr) return Turn::kAdvance;
  const auto agreed = session_.strategy().agreed_flags();
  flags_ = agreed;
  flags_step_ = session_.arena().counters().step;
  return membership_->committed(agreed.newer_roster) ? Turn::kEnter : Turn::kAdvance;
}

// An audit found a difference in a step, which was not applied.
Result<Trainer::Turn> Trainer::settle_difference() {
  if (session_.auditor().own_damage()) {
    membership_->report_own_damage();
    return Turn::kEnter;
  }
  auto verdict = membership_->judge();
  if (verdict.ok()) {
    MUSTER_RETURN_IF_ERROR(membership_->reject(*verdict, sources()));
  } else {
    MUSTER_RETURN_IF_ERROR(membership_->give_up_state(verdict.error().message(), sources()));
    if (!membership_->lost(verdict.error())) return std::move(verdict).error();
  }
  return Turn::kEnter;
}

// What an audit found, and what is void because of it.
Status Trainer::roll_back(const std::string& what, const roster::Rollback* rollback, bool keep) {
  const auto text =
      rollback == nullptr
          ? what
          : fmt::format("{}. All workers return to the newest checkpoint up to step {}", what,
                        rollback->step);
  if (recorder_.on()) {
    recorder_.warn(text);
  } else {
    env_.log->warning("{}", text);
  }
  if (rollback == nullptr) return {};
  recorder_.end();  // what is being written is finished before it is declared void
  if (keep) return recorder_.store().roll_back(as_stored(*rollback));
  // This host may have a run directory of its own, with checkpoints that are invalid too.
  return env_.copy.reader != nullptr ? recorder_.store().note_rollback(as_stored(*rollback))
                                     : Status();
}

Status Trainer::evaluate() {
  Counters& counters = session_.arena().counters();
  recorder_.evaluating();
  MUSTER_TRY(const auto report, session_.evaluate());
  session_.remember(report);
  const double value = report.at(best_by_);
  if (is_better(value)) {
    counters.best.value = value;
    counters.best.step = counters.step;
    counters.best.stale = 0;
  } else {
    counters.best.stale += 1;
  }
  session_.arena().seal_counters();
  flags_.evaluate = 0;
  last_eval_time_ = env_.clock->now();
  return recorder_.evaluated(report);
}

// Everybody is at the last boundary. Nobody leaves before all is written: if the one that records
// dies now, another one does it. A copy that cannot be completed ends the job all the same: another
// worker could not complete it either.
Result<Trainer::Turn> Trainer::conclude(EndReason reason) {
  reason_ = reason;
  if (membership_ != nullptr) {
    // What was not compared in a step is now, before it becomes the result.
    MUSTER_TRY(const auto verdict, membership_->compare_states());
    if (verdict) {
      MUSTER_RETURN_IF_ERROR(membership_->reject(*verdict, sources()));
      return Turn::kEnter;
    }
  }
  TrainSummary ended;
  if (recorder_.on()) {
    if (!recorder_.saved()) MUSTER_RETURN_IF_ERROR(recorder_.save(false, elapsed()));
    MUSTER_RETURN_IF_ERROR(recorder_.flush());
    ended = summary(reason);
  }
  not_sent_.reset();
  if (reason != EndReason::kSignal) MUSTER_RETURN_IF_ERROR(complete_copy());
  if (recorder_.on() && !not_sent_) {
    ended.reason = reason_;
    const auto result = describe(ended);
    MUSTER_RETURN_IF_ERROR(reason_ == EndReason::kSignal ? recorder_.interrupt(flags_.stop, result)
                                                         : recorder_.finish(result));
  }
  if (reason_ != EndReason::kSignal) MUSTER_RETURN_IF_ERROR(send_result());
  if (membership_ != nullptr) {
    MUSTER_RETURN_IF_ERROR(membership_->barrier());
    if (reason_ != EndReason::kSignal) membership_->finished();
  }
  return Turn::kEnd;
}

// Until the copy, if there is one, has the last checkpoint. A store may be away for hours and a
// collective has a timeout, so all wait in parts. SIGINT ends the wait: the job was stopped then.
Status Trainer::complete_copy() {
  if (membership_ == nullptr) {
    const auto sent = recorder_.send_copy(std::nullopt);
    if (!sent.ok()) not_sent_ = sent.error();
    return {};
  }
  constexpr auto kPart = std::chrono::milliseconds(200);
  std::array<uint8_t, 2> all{};  // whether it is not complete yet; the signal
  do {
    const auto sent = recorder_.send_copy(kPart);
    if (!sent.ok()) not_sent_ = sent.error();
    all = {static_cast<uint8_t>(sent.ok() && !*sent),
           static_cast<uint8_t>(env_.stop_signal() == SIGINT ? SIGINT : 0)};
    MUSTER_RETURN_IF_ERROR(membership_->combine(all));
  } while (all[0] != 0 && all[1] == 0);
  if (all[0] != 0) {
    flags_.stop = all[1];
    reason_ = EndReason::kSignal;
  }
  return {};
}

// A host with a run directory of its own has the result for itself: others find it in the copy. The
// run is finished all the same, so nobody waits for it long.
Status Trainer::send_result() {
  constexpr auto kAlone = std::chrono::seconds(10);
  constexpr auto kPart = std::chrono::milliseconds(200);
  constexpr int kParts = 300;  // a minute
  if (membership_ == nullptr) {
    (void)recorder_.send_result(kAlone);
    return {};
  }
  if (session_.job().checkpoint.to.empty()) return {};
  for (int i = 0; i < kParts; ++i) {
    std::array<uint8_t, 2> all = {static_cast<uint8_t>(recorder_.send_result(kPart) ? 0 : 1),
                                  static_cast<uint8_t>(env_.stop_signal() == SIGINT ? 1 : 0)};
    MUSTER_RETURN_IF_ERROR(membership_->combine(all));
    if (all[0] == 0 || all[1] != 0) break;
  }
  return {};
}

// Told to go, and there is nobody to agree with: whoever recorded saves what it has.
Result<Trainer::Turn> Trainer::give_up() {
  flags_.stop = static_cast<uint8_t>(env_.stop_signal());
  reason_ = EndReason::kSignal;
  if (recorder_.on() && membership_->has_state()) {
    MUSTER_TRY(const bool can_save, rows_are_here());
    if (can_save && !recorder_.saved()) MUSTER_RETURN_IF_ERROR(recorder_.save(false, elapsed()));
    MUSTER_RETURN_IF_ERROR(recorder_.flush());
    MUSTER_RETURN_IF_ERROR(recorder_.interrupt(flags_.stop, describe(summary(reason_))));
  }
  return Turn::kEnd;
}

// Of weights, and of rows if there are any.
std::string Trainer::hash_of_all() const {
  const auto weights = session_.arena().weights_hash();
  // The others may have gone on, or ended.
  if (session_.rows() == nullptr || !recorder_.on()) return weights.hex();
  if (!session_.strategy().is_complete()) return weights.hex();
  const auto rows = session_.rows()->hash(session_.arena().counters().step);
  if (!rows.ok()) {
    env_.log->warning("the hash of rows is not known: {}", rows.error().message());
    return weights.hex();
  }
  return train::hash_of_all(weights, *rows);
}

TrainSummary Trainer::summary(EndReason reason) const {
  TrainSummary summary;
  summary.reason = reason;
  summary.signal = reason == EndReason::kSignal ? flags_.stop : 0;
  summary.weights_hash = hash_of_all();
  summary.counters = session_.arena().counters();
  summary.seconds = seconds(env_.clock->now() - started_);
  summary.test = session_.last_evaluation().values;
  return summary;
}

nlohmann::json Trainer::describe(const TrainSummary& summary) const {
  const auto name = [](EndReason reason) {
    switch (reason) {
      case EndReason::kDone:
        return "done";
      case EndReason::kTime:
        return "time";
      case EndReason::kEarlyStop:
        return "early_stop";
      case EndReason::kSignal:
        return "signal";
      case EndReason::kLeft:
        return "left";
    }
    return "";
  };
  auto test = nlohmann::json::object();
  for (const auto& [metric, value] : summary.test) test[metric] = value;
  const auto& counters = summary.counters;
  const auto fingerprint = session_.fingerprint();
  return {{"name", session_.job().name},
          {"weights_hash", summary.weights_hash},
          {"steps", counters.step},
          {"samples", counters.samples},
          {"ledger", fmt::format("{:016x}", counters.ledger)},
          {"redone_steps", counters.redone},
          {"skipped_steps", counters.skipped},
          {"damaged_blocks", counters.replaced.count},
          {"replaced_samples", counters.replaced.samples},
          {"fewest_gradient_bits", counters.fewest_gradient_bits},
          {"seconds", summary.seconds},
          {"test", test},
          {"best_step", counters.best.step},
          {"ended", name(summary.reason)},
          {"workers", membership_ != nullptr ? membership_->size() : 1},
          {"reduction", session_.job().sync.reduction},
          {"numerics", session_.job().numerics},
          {"fingerprint", to_json(fingerprint.ok() ? *fingerprint : JobFingerprint{})},
          {"run_dir", recorder_.directory()}};
}

}  // namespace muster::train
