#include "muster/train/step/local_then_lockstep.h"

#include <algorithm>

#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

config::Job lockstep_of(const config::Job& job) {
  auto lockstep = job;
  lockstep.sync = sync::lockstep_of(job.sync);
  return lockstep;
}

}  // namespace

LocalThenLockstep::LocalThenLockstep(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      lockstep_job_(lockstep_of(job)),
      parts_(parts),
      local_(job, parts),
      lockstep_(lockstep_job_, parts),
      message_(std::max(local_.message_bytes().size(), lockstep_.message_bytes().size())) {}

bool LocalThenLockstep::next_is_local() const {
  const int64_t end = sync::periodic_steps(job_.sync, parts_.lanes->total_steps());
  return parts_.arena->counters().step < end;
}

bool LocalThenLockstep::last_was_local() const {
  const auto lockstep = lockstep_.message_of();
  const auto local = local_.message_of();
  return !lockstep || (local && local->step > lockstep->step);
}

void LocalThenLockstep::assign(std::vector<int> units, comm::Group* group, Duration timeout) {
  lockstep_.assign(sync::lanes_of(job_, units), group, timeout);
  local_.assign(std::move(units), group, timeout);
}

void LocalThenLockstep::join_site(comm::Group& site, std::vector<int> units) {
  local_.join_site(site, std::move(units));
  lockstep_.set_lanes(local_.lanes());
}

void LocalThenLockstep::set_vitals(const Vitals* vitals) {
  local_.set_vitals(vitals);
  lockstep_.set_vitals(vitals);
}

Result<StepReport> LocalThenLockstep::run(const std::function<CommitFlags()>& flags) {
  if (!next_is_local()) {
    show_weights();
    parts_.lanes->take_mean_over({});
  }
  return next().run(flags);
}

std::optional<roster::Position> LocalThenLockstep::message_of() const {
  const auto from = last().message_of();
  if (!from || !last_was_local()) return from;
  // Once lockstep has committed something it no longer leads to the present position.
  const Counters& counters = parts_.arena->counters();
  const bool leads_here = static_cast<int64_t>(from->step) + counters.last.steps == counters.step &&
                          counters.redo.attempt == 0;
  return leads_here ? from : std::nullopt;
}

std::span<const uint8_t> LocalThenLockstep::message_bytes() const {
  std::ranges::copy(last().message_bytes(), message_.begin());
  return message_;
}

Result<bool> LocalThenLockstep::apply_message(std::span<const uint8_t> message) {
  return next().apply_message(message.first(next().message_bytes().size()));
}

// Of a replica: several lanes, some of them at the same time.
double LocalThenLockstep::lane_seconds() const {
  if (last_was_local()) return local_.lane_seconds();
  const int lanes = sync::lanes_per_unit(job_);
  const auto own = static_cast<int>(this->lanes().size());
  const int at_once = std::max(1, std::min(own, lockstep_.units_at_once()));
  return lockstep_.lane_seconds() * lanes / at_once / local_.workers_of_replica();
}

void LocalThenLockstep::was_replaced() {
  local_.was_replaced();
  lockstep_.was_replaced();
}

void LocalThenLockstep::forget() {
  local_.forget();
  lockstep_.forget();
}

}  // namespace muster::train
