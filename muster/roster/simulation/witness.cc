#include "muster/roster/simulation/witness.h"

#include <algorithm>

#include "muster/base/hash.h"

namespace muster::roster::simulation {

namespace {

uint64_t mixed(uint64_t a, uint64_t b, uint64_t c = 0) {
  const uint64_t words[] = {a, b, c};
  return hash64(words, sizeof words, 0x1a9e);
}

}  // namespace

uint64_t contribution(const Position& position, int32_t lane) {
  return mixed(position.step, position.attempt, static_cast<uint64_t>(lane));
}

bool overflows(const Position& position, int32_t lane) {
  return position.attempt == 0 &&
         mixed(position.step, 0x0f10, static_cast<uint64_t>(lane)) % 40 == 0;
}

uint64_t applied(uint64_t state, uint64_t sum) { return mixed(state, sum); }

Tally& Tally::operator+=(const Tally& other) {
  steps += other.steps;
  rosters += other.rosters;
  waiting_rosters += other.waiting_rosters;
  redone += other.redone;
  rolled += other.rolled;
  received += other.received;
  restored += other.restored;
  outdated += other.outdated;
  aborted += other.aborted;
  failed += other.failed;
  switched += other.switched;
  retries += other.retries;
  quarantined += other.quarantined;
  hung += other.hung;
  lapsed += other.lapsed;
  rejoined += other.rejoined;
  standstills += other.standstills;
  suspensions += other.suspensions;
  evaluations += other.evaluations;
  slow_restores += other.slow_restores;
  vanished += other.vanished;
  left += other.left;
  removed += other.removed;
  adopted += other.adopted;
  lane_moves += other.lane_moves;
  overflows += other.overflows;
  split += other.split;
  faults += other.faults;
  return *this;
}

std::string Tally::text() const {
  return fmt::format(
      "{} faults, {} steps committed, {} rosters ({} waiting, {} retries, {} standstills, {} for "
      "speed, {} adopted); groups: {} switched, {} aborted, {} failed; workers: {} rolled forward, "
      "{} received, {} restored ({} for an older state, {} slowly, {} deleted before), {} "
      "rejoined, "
      "{} left, {} leases expired, {} hung, {} quarantined; {} attempts given up, {} overflows, {} "
      "commits seen by some only; {} suspensions of the coordinator, {} long evaluations",
      faults, steps, rosters, waiting_rosters, retries, standstills, lane_moves, adopted, switched,
      aborted, failed, rolled, received, restored, outdated, slow_restores, vanished, rejoined,
      left, lapsed, hung, quarantined, redone, overflows, split, suspensions, evaluations);
}

Witness::Witness(int32_t lanes, uint64_t samples, uint64_t batch)
    : lanes_(lanes), samples_(samples), batch_(batch) {}

void Witness::violated(std::string what) {
  if (!violation_) violation_ = std::move(what);
}

void Witness::handed(RosterNumber number, uint64_t checksum) {
  const auto [found, first] = numbers_.emplace(number, checksum);
  if (!first && found->second != checksum) {
    violated(fmt::format("two rosters have number {} (roster {})", number, sequence_of(number)));
  }
}

void Witness::issued(uint64_t term, const Roster& roster) {
  ++tally.rosters;
  if (roster.waiting) ++tally.waiting_rosters;
  if (roster.reason.find("lanes follow speed") != std::string::npos) ++tally.lane_moves;
  if (numbers_.contains(roster.number)) {
    violated(fmt::format("number {} was issued twice", roster.number));
  }
  handed(roster.number, roster.checksum());
  if (term != term_) {
    term_ = term;
    last_ = {};
    out_.clear();
  }
  const auto has = [&](const WorkerKey& key) {
    return roster.has(key) || std::ranges::find(roster.leaving, key) != roster.leaving.end();
  };
  for (const Member& member : last_.members) {
    if (!has(member.key)) out_.insert(member.key);
  }
  for (const WorkerKey& key : last_.leaving) {
    if (!has(key)) out_.insert(key);
  }
  std::set<std::string> ids;
  std::vector<int> count(static_cast<size_t>(lanes_), 0);
  for (const Member& member : roster.members) {
    if (out_.contains(member.key)) {
      violated(fmt::format("worker {} was out and counts again in roster {}", member.key.id,
                           sequence_of(roster.number)));
    }
    if (!ids.insert(member.key.id).second) {
      violated(fmt::format("worker {} is twice in roster {}", member.key.id, roster.number));
    }
    for (const int32_t lane : member.lanes) ++count[static_cast<size_t>(lane)];
  }
  const int expected = roster.waiting ? 0 : 1;
  if (std::ranges::any_of(count, [&](int n) { return n != expected; })) {
    violated(fmt::format("roster {} does not give out every lane once", roster.number));
  }
  last_ = roster;
}

void Witness::reduced(const Position& position, const std::vector<uint8_t>& lanes) {
  lanes_of_[position.step] = lanes;
  if (std::ranges::any_of(lanes, [](uint8_t n) { return n != 1; })) {
    violated(fmt::format("the sums after {} do not have every lane once", position.text()));
  }
}

uint64_t Witness::reference(uint64_t step) {
  while (reference_.size() <= step) {
    Position position{.step = reference_.size() - 1, .attempt = 0};
    for (int32_t lane = 0; lane < lanes_; ++lane) {
      if (overflows(position, lane)) {
        position.attempt = 1;
        break;
      }
    }
    uint64_t sum = 0;
    for (int32_t lane = 0; lane < lanes_; ++lane) sum += contribution(position, lane);
    reference_.push_back(applied(reference_.back(), sum));
  }
  return reference_[step];
}

void Witness::has(const std::string& who, const Position& position, uint64_t state) {
  const auto [found, first] = committed_.emplace(position.step, state);
  if (!first && found->second != state) {
    violated(
        fmt::format("worker {} has another state than others after step {}", who, position.step));
  } else if (state != reference(position.step)) {
    violated(fmt::format("worker {} has another state than an undisturbed run after step {}", who,
                         position.step));
  }
  if (first && position.step > 0) ++tally.steps;
  newest_step_ = std::max(newest_step_, position.step);
}

void Witness::check_samples() {
  std::vector<uint32_t> used(samples_, 0);
  const uint64_t whole = newest_step_ * batch_ / samples_ * samples_;
  for (uint64_t place = 0; place < whole; ++place) {
    const uint64_t step = place / batch_;
    const auto found = lanes_of_.find(step);
    if (found == lanes_of_.end()) {
      violated(fmt::format("step {} is in the history, but nobody computed it", step));
      return;
    }
    // Lane l has the l-th part of the batch.
    const uint64_t lane = place % batch_ * static_cast<uint64_t>(lanes_) / batch_;
    used[place % samples_] += found->second[lane];
  }
  const auto passes = static_cast<uint32_t>(whole / samples_);
  if (std::ranges::any_of(used, [&](uint32_t n) { return n != passes; })) {
    violated(fmt::format("a sample was not used exactly once in each of {} passes", passes));
  }
}

}  // namespace muster::roster::simulation
