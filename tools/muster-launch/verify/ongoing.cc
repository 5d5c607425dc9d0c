#include "tools/muster-launch/verify/ongoing.h"

#include <signal.h>

#include <algorithm>

#include "muster/base/fault_point.h"

#include "tools/muster-launch/verify/network.h"

namespace muster::cli {
namespace {

// More commits than may have been under way when the network was cut.
constexpr uint64_t kProgress = 3;
// A cut heals after that even if the job made no progress, which the timeline then shows.
constexpr double kLongestCut = 40;  // seconds

}  // namespace

Ongoing::~Ongoing() {
  for (const auto& stopped : stopped_) ::kill(stopped.process, SIGCONT);
  if (paused_) ::kill(paused_->process, SIGCONT);
}

bool Ongoing::stop(size_t fault, const Target& victim, double until) {
  if (::kill(victim.process, SIGSTOP) != 0) return false;
  stopped_.push_back({fault, victim.process, until});
  return true;
}

bool Ongoing::hang(size_t fault, const Target& victim) {
  auto process = HungProcess::make(victim.process, training_.is_child(victim.process));
  if (!process.ok()) return false;
  hung_.push_back({fault, victim, *std::move(process)});
  return true;
}

bool Ongoing::cut(size_t fault, const Target& a, const Target& b, uint64_t step, double heal,
                  double now) {
  if (plan_.network == nullptr || !plan_.network->cut(a.id, b.id).ok()) return false;
  cuts_.push_back({fault, a.id, b.id, step, now, heal, std::nullopt});
  return true;
}

bool Ongoing::flip(size_t fault, const Target& victim, uint32_t draw) {
  if (!flip_bit(victim.process, draw)) return false;
  corrupted_.push_back({fault, victim});
  return true;
}

bool Ongoing::lie(size_t fault, const Target& victim) {
  if (!make_lie(victim.process)) return false;
  corrupted_.push_back({fault, victim});
  return true;
}

bool Ongoing::pause_coordinator(size_t fault, double until) {
  const pid_t coordinator = training_.coordinator();
  if (coordinator_is_away() || ::kill(coordinator, SIGSTOP) != 0) return false;
  paused_ = Stopped{fault, coordinator, until};
  return true;
}

bool Ongoing::restart_coordinator(size_t fault, double absence) {
  if (coordinator_is_away() || !training_.restart_coordinator(absence)) return false;
  restarted_ = fault;
  return true;
}

std::vector<Ongoing::Finished> Ongoing::finished(double now, uint64_t step) {
  std::vector<Finished> finished;
  std::erase_if(stopped_, [&](const Stopped& stopped) {
    if (now < stopped.until) return false;
    ::kill(stopped.process, SIGCONT);
    finished.push_back({stopped.fault});
    return true;
  });
  if (paused_ && now >= paused_->until) {
    ::kill(paused_->process, SIGCONT);
    finished.push_back({paused_->fault});
    paused_.reset();
  }
  if (restarted_ && training_.coordinator() != 0) {
    finished.push_back({*restarted_});
    restarted_.reset();
  }
  std::erase_if(hung_, [&](Hung& hung) {
    if (!hung.process.ended()) return false;
    finished.push_back({hung.fault});
    return true;
  });
  std::erase_if(corrupted_, [&](const Corrupted& corrupted) {
    if (!corrupted.removed) return false;
    finished.push_back({corrupted.fault});
    return true;
  });
  std::erase_if(cuts_, [&](Cut& cut) {
    if (!cut.until && step >= cut.step + kProgress) cut.until = now + cut.heal;
    if (now < std::min(cut.until.value_or(now + 1), cut.began + kLongestCut)) return false;
    (void)plan_.network->heal(cut.a, cut.b);
    finished.push_back({cut.fault});
    return true;
  });
  return finished;
}

void Ongoing::see(const std::vector<Target>& members) {
  for (auto& corrupted : corrupted_) {
    corrupted.removed |= std::ranges::find(members, corrupted.target) == members.end();
    const pid_t process = corrupted.target.process;
    if (corrupted.removed && training_.is_child(process)) ::kill(process, SIGKILL);
  }
  for (const auto& hung : hung_) {
    const bool removed = std::ranges::find(members, hung.target) == members.end();
    if (removed && training_.is_child(hung.target.process)) ::kill(hung.target.process, SIGKILL);
  }
}

bool Ongoing::involves(const Target& target) const {
  return std::ranges::find(stopped_, target.process, &Stopped::process) != stopped_.end() ||
         std::ranges::any_of(hung_,
                             [&](const Hung& hung) { return hung.target.id == target.id; }) ||
         std::ranges::any_of(corrupted_,
                             [&](const Corrupted& one) { return one.target.id == target.id; }) ||
         std::ranges::any_of(
             cuts_, [&](const Cut& cut) { return cut.a == target.id || cut.b == target.id; });
}

bool Ongoing::coordinator_is_away() const {
  return paused_ || restarted_ || training_.coordinator() == 0;
}

bool Ongoing::nothing() const {
  return stopped_.empty() && !paused_ && !restarted_ && hung_.empty() && corrupted_.empty() &&
         cuts_.empty();
}

}  // namespace muster::cli
