#include "tools/muster-launch/verify/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tools/muster-launch/verify/fault_target.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using launch::FaultKind;

constexpr std::array<std::pair<FaultKind, const char*>, 17> kShown = {{
    {FaultKind::kKill, "kill"},
    {FaultKind::kAimed, "kill at a point"},
    {FaultKind::kPair, "two killed"},
    {FaultKind::kMost, "all but one killed"},
    {FaultKind::kSuspend, "suspend"},
    {FaultKind::kLeave, "leave"},
    {FaultKind::kJoin, "join"},
    {FaultKind::kHang, "hang"},
    {FaultKind::kCut, "cut"},
    {FaultKind::kSlowDisk, "slow-disk"},
    {FaultKind::kFlip, "flip"},
    {FaultKind::kLie, "lie"},
    {FaultKind::kPause, "pause"},
    {FaultKind::kRestart, "restart"},
    {FaultKind::kKillServer, "kill-server"},
    {FaultKind::kAimedServer, "kill-server at a point"},
    {FaultKind::kSuspendServer, "suspend-server"},
}};

// Those whose pause is theirs alone.
bool is_long(FaultKind kind) {
  return kind == FaultKind::kSuspend || kind == FaultKind::kHang || kind == FaultKind::kCut ||
         kind == FaultKind::kFlip || kind == FaultKind::kLie || kind == FaultKind::kSuspendServer;
}

bool lasts(FaultKind kind) {
  return kind == FaultKind::kSlowDisk || kind == FaultKind::kFlip || kind == FaultKind::kLie ||
         kind == FaultKind::kPause || kind == FaultKind::kRestart;
}

bool is_of_coordinator(FaultKind kind) {
  return kind == FaultKind::kPause || kind == FaultKind::kRestart;
}

// Between the commits of a job. Pause i ends with its commit i, so there is no pause 0.
class Pauses {
 public:
  explicit Pauses(const CommitTimes& commits) {
    for (const auto& [step, time] : commits) times_.push_back(time);
    if (times_.size() < 2) return;
    std::vector<double> sorted;
    for (size_t i = 1; i < times_.size(); ++i) sorted.push_back(length(i));
    std::ranges::sort(sorted);
    usual_ = sorted[sorted.size() / 2];
  }
  double usual() const { return usual_; }
  double end(size_t pause) const { return times_[pause]; }
  double length(size_t pause) const { return times_[pause] - times_[pause - 1]; }

  // The longest one from the pause that `when` falls into to the one behind that which `until`
  // falls into, but for those in `without`.
  std::optional<size_t> longest_behind(double when, double until,
                                       const std::set<size_t>& without) const {
    const size_t first = pause_at(when);
    const size_t end = std::min(pause_at(std::max(when, until)) + 2, times_.size());
    std::optional<size_t> longest;
    for (size_t i = std::max<size_t>(first, 1); i < end; ++i) {
      if (without.contains(i)) continue;
      if (!longest || length(i) > length(*longest)) longest = i;
    }
    return longest;
  }

 private:
  size_t pause_at(double when) const {
    return static_cast<size_t>(std::ranges::upper_bound(times_, when) - times_.begin());
  }

  std::vector<double> times_;
  double usual_ = 0;
};

// Below its fault, set in.
std::string recovery_text(double after, const char* what, const std::string& about) {
  return fmt::format("{:>8.2f} s  {:>13}  {:<18} {}", after, "", what, about);
}

Json known(double time) { return time < 0 ? Json() : Json(time); }

Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size() - 1)))];
  };
  return {values.size(), at(0.5), at(0.99), values.back()};
}

// {"kill": {...}, ...} for each kind of which there are some.
template <typename F>
Json by_kind(F spread_of_kind) {
  Json kinds = Json::object();
  for (const auto& [kind, name] : kShown) {
    const Spread spread = spread_of_kind(kind);
    if (spread.count == 0) continue;
    kinds[name] = {{"count", spread.count},
                   {"median", spread.median},
                   {"p99", spread.worst99},
                   {"longest", spread.worst}};
  }
  return kinds;
}

std::string whom_text(const InjectedFault& what) {
  if (is_of_coordinator(what.kind)) return "coordinator";
  return hits_server(what.kind) ? what.whom : fmt::format("worker {}", what.whom);
}

}  // namespace

double over_at(const InjectedFault& what) { return lasts(what.kind) ? what.until : what.when; }

double measure_pauses(const CommitTimes& commits, std::vector<InjectedFault>& happened) {
  const Pauses pauses(commits);
  std::set<size_t> of_long;
  for (const auto& what : happened) {
    if (!is_long(what.kind)) continue;
    const double until = lasts(what.kind) ? what.until : what.when;
    if (const auto longest = pauses.longest_behind(what.when, until, {})) of_long.insert(*longest);
  }
  for (auto& what : happened) {
    const double until = lasts(what.kind) ? what.until : what.when;
    const auto longest =
        pauses.longest_behind(what.when, until, is_long(what.kind) ? std::set<size_t>() : of_long);
    what.stalled = longest ? std::max(0.0, pauses.length(*longest) - pauses.usual()) : -1;
    what.recovered = longest ? pauses.end(*longest) : -1;
  }
  return pauses.usual();
}

Spread spread_of(const std::vector<InjectedFault>& happened, FaultKind kind) {
  std::vector<double> values;
  for (const auto& what : happened) {
    if (what.kind == kind && what.stalled >= 0) values.push_back(what.stalled);
  }
  return spread(std::move(values));
}

Spread rejoin_spread_of(const std::vector<InjectedFault>& happened, FaultKind kind) {
  std::vector<double> values;
  for (const auto& what : happened) {
    if (what.kind == kind && what.rejoined >= 0) values.push_back(what.rejoined - what.when);
  }
  return spread(std::move(values));
}

std::string happened_text(const InjectedFault& what) {
  return fmt::format("{:>8.2f} s  step {:>6}  {:<20} {}", what.after, what.step, what.name,
                     whom_text(what));
}

std::string recovered_text(const InjectedFault& what) {
  return recovery_text(
      what.after + what.recovered - what.when, "recovered",
      fmt::format("stalled for {:.0f} ms by {} of {}", 1000 * what.stalled, what.name, what.whom));
}

std::string rejoined_text(const InjectedFault& what, const std::string& whom, double when) {
  return recovery_text(
      what.after + when - what.when, what.kind == FaultKind::kJoin ? "joined" : "rejoined",
      fmt::format("worker {}, {:.2f} s after {}", whom, when - what.when, what.name));
}

std::vector<std::string> pauses_text(const std::vector<InjectedFault>& happened,
                                     double step_seconds) {
  std::vector<std::string> lines = {
      fmt::format("the others were stalled for (less a step of {:.1f} ms):", 1000 * step_seconds)};
  for (const auto& [kind, name] : kShown) {
    const Spread spread = spread_of(happened, kind);
    if (spread.count == 0) continue;
    const Spread rejoin = rejoin_spread_of(happened, kind);
    lines.push_back(fmt::format(
        "  {:<20} {:>4} times: median {:>6.0f} ms, 99 % {:>6.0f} ms, longest {:>6.0f} ms{}", name,
        spread.count, 1000 * spread.median, 1000 * spread.worst99, 1000 * spread.worst,
        rejoin.count == 0
            ? ""
            : fmt::format(", {} after {:.2f} s", kind == FaultKind::kJoin ? "joined" : "rejoined",
                          rejoin.median)));
  }
  return lines;
}

Json pauses_json(const std::vector<InjectedFault>& happened) {
  return by_kind([&](FaultKind kind) { return spread_of(happened, kind); });
}

Json rejoins_json(const std::vector<InjectedFault>& happened) {
  return by_kind([&](FaultKind kind) { return rejoin_spread_of(happened, kind); });
}

Json timeline_json(const std::vector<InjectedFault>& happened) {
  Json timeline = Json::array();
  for (const auto& what : happened) {
    timeline.push_back({{"time", what.when},
                        {"step", what.step},
                        {"fault", what.name},
                        {"worker", what.whom},
                        {"stalled", what.stalled},
                        {"recovered", known(what.recovered)},
                        {"rejoined", known(what.rejoined)},
                        {"until", known(what.until)}});
  }
  return timeline;
}

}  // namespace muster::cli
