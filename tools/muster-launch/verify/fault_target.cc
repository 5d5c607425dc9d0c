#include "tools/muster-launch/verify/fault_target.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace muster::cli {
namespace {

using launch::Fault;
using launch::FaultKind;

constexpr std::string_view kJoiner = "joiner-";

// Some points are only passed when something happens to another worker.
bool needs_another(FaultPoint point) {
  return point == FaultPoint::kForming || point == FaultPoint::kRecovery ||
         point == FaultPoint::kTransfer;
}

std::optional<FaultTarget> aim(const Fault& fault, const std::vector<Target>& free,
                               const Target& any) {
  if (needs_another(fault.point) && free.size() < 3) return std::nullopt;
  // Only the first one writes checkpoints.
  const Target& victim = fault.point == FaultPoint::kCheckpoint ? free.front() : any;
  FaultTarget target{{victim}, fault_signal(fault.point), std::nullopt};
  if (needs_another(fault.point)) target.killed = free[free[0] == victim ? 1 : 0];
  return target;
}

// Of parameter servers, all of which are ready.
std::optional<FaultTarget> aim_at_server(const Fault& fault, const std::vector<Target>& servers,
                                         const Target& victim) {
  FaultTarget target{{victim}, fault_signal(fault.point), std::nullopt};
  // Another one joins again, and while the victim sends copies to it a third one has all shards.
  if (fault.point == FaultPoint::kCopy) {
    if (servers.size() < 3) return std::nullopt;
    target.killed = servers[servers[0] == victim ? 1 : 0];
  }
  target.suspended = fault.point == FaultPoint::kJoin;
  return target;
}

// Only those that the launcher started: it kills one that hangs, and they have networks of their
// own.
std::vector<Target> launched(const std::vector<Target>& free) {
  std::vector<Target> own;
  std::ranges::copy_if(free, std::back_inserter(own),
                       [](const Target& t) { return !is_joiner(t); });
  return own;
}

std::optional<FaultTarget> hang(const Fault& fault, const std::vector<Target>& free) {
  const auto own = launched(free);
  if (free.size() < 2 || own.empty()) return std::nullopt;
  return FaultTarget{{own[(fault.draw >> 16) % own.size()]}, 0, std::nullopt};
}

// With two others the workers can tell which one is wrong.
std::optional<FaultTarget> corrupt(const Fault& fault, const std::vector<Target>& free) {
  const auto own = launched(free);
  if (free.size() < 3 || own.empty()) return std::nullopt;
  return FaultTarget{{own[(fault.draw >> 16) % own.size()]}, 0, std::nullopt};
}

// A third one shall be there, which reaches both.
std::optional<FaultTarget> cut(const Fault& fault, const std::vector<Target>& free) {
  auto own = launched(free);
  if (free.size() < 3 || own.size() < 2) return std::nullopt;
  std::swap(own[0], own[(fault.draw >> 16) % own.size()]);
  const size_t second = 1 + (fault.draw >> 32) % (own.size() - 1);
  return FaultTarget{{own[0], own[second]}, 0, std::nullopt};
}

}  // namespace

std::string joiner_id(int number) { return fmt::format("{}{}", kJoiner, number); }
bool is_joiner(const Target& target) { return target.id.starts_with(kJoiner); }

std::optional<FaultTarget> choose_target(const Fault& fault, std::vector<Target> free, int lanes) {
  if (free.empty()) return std::nullopt;
  Target& victim = free[(fault.draw >> 16) % free.size()];
  switch (fault.kind) {
    case FaultKind::kKill:
      return FaultTarget{{victim}, SIGKILL, std::nullopt};
    case FaultKind::kAimed:
      return aim(fault, free, victim);
    case FaultKind::kPair:
      if (free.size() < 3) return std::nullopt;
      std::swap(victim, free.front());
      return FaultTarget{{free[0], free[1]}, SIGKILL, std::nullopt};
    case FaultKind::kMost:
      if (free.size() < 2) return std::nullopt;
      std::swap(victim, free.back());
      free.pop_back();
      return FaultTarget{std::move(free), SIGKILL, std::nullopt};
    case FaultKind::kKillServer:
      return FaultTarget{{victim}, SIGKILL, std::nullopt};
    case FaultKind::kAimedServer:
      return aim_at_server(fault, free, victim);
    case FaultKind::kSuspendServer:
      return FaultTarget{{victim}, SIGSTOP, std::nullopt};
    case FaultKind::kSuspend:
      if (free.size() < 2) return std::nullopt;
      return FaultTarget{{victim}, SIGSTOP, std::nullopt};
    case FaultKind::kLeave: {
      // One that the launcher started stays: without any it ends the job.
      const auto own = std::ssize(free) - std::ranges::count_if(free, is_joiner);
      if (free.size() < 2 || (own < 2 && !is_joiner(victim))) return std::nullopt;
      return FaultTarget{{victim}, SIGTERM, std::nullopt};
    }
    case FaultKind::kJoin:
      if (std::ssize(free) >= lanes) return std::nullopt;
      return FaultTarget{};
    case FaultKind::kHang:
      return hang(fault, free);
    case FaultKind::kCut:
      return cut(fault, free);
    case FaultKind::kFlip:
    case FaultKind::kLie:
      return corrupt(fault, free);
    case FaultKind::kSlowDisk:
      return FaultTarget{{free.front()}, 0, std::nullopt};  // only the first one writes checkpoints
    case FaultKind::kPause:
      return FaultTarget{{}, SIGSTOP, std::nullopt};
    case FaultKind::kRestart:
      return FaultTarget{{}, SIGKILL, std::nullopt};
  }
  return std::nullopt;
}

bool comes_in(FaultKind kind, const Target& target) {
  switch (kind) {
    case FaultKind::kSuspend:
    case FaultKind::kJoin:
      return true;
    case FaultKind::kLeave:
    case FaultKind::kCut:       // one of the two is removed, and which one is not known before
    case FaultKind::kSlowDisk:  // it stays
    case FaultKind::kPause:
    case FaultKind::kRestart:
    case FaultKind::kKillServer:
    case FaultKind::kAimedServer:
    case FaultKind::kSuspendServer:
      return false;
    default:
      return !is_joiner(target);
  }
}

bool ends_incarnation(FaultKind kind) {
  switch (kind) {
    case FaultKind::kJoin:
    case FaultKind::kCut:
    case FaultKind::kSlowDisk:
    case FaultKind::kPause:
    case FaultKind::kRestart:
      return false;
    default:
      return true;
  }
}

bool hits_server(FaultKind kind) {
  return kind == FaultKind::kKillServer || kind == FaultKind::kAimedServer ||
         kind == FaultKind::kSuspendServer;
}

bool hits_coordinator(FaultKind kind) {
  return kind == FaultKind::kPause || kind == FaultKind::kRestart;
}

Duration delay_of(const Fault& fault) { return std::chrono::microseconds(fault.draw % 5000); }

double stop_seconds(const Fault& fault, double lease) {
  return lease + 0.5 + static_cast<double>(fault.draw % 1000) / 1000;
}

double absence_seconds(const Fault& fault) { return static_cast<double>(fault.draw % 1000) / 1000; }

double heal_seconds(const Fault& fault) { return 1 + static_cast<double>(fault.draw % 1000) / 500; }

int slow_disk_milliseconds(const Fault& fault, double hang_timeout) {
  const double longest = 60000;
  return static_cast<int>(
      std::min(longest, 1000 * hang_timeout + 500 + static_cast<double>(fault.draw % 1000)));
}

}  // namespace muster::cli
