#include "tools/muster-launch/verify/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using launch::FaultKind;

constexpr std::array<std::pair<FaultKind, const char*>, 7> kShown = {{
    {FaultKind::kKill, "kill"},
    {FaultKind::kAimed, "kill at a point"},
    {FaultKind::kPair, "two killed"},
    {FaultKind::kMost, "all but one killed"},
    {FaultKind::kStop, "stop"},
    {FaultKind::kLeave, "leave"},
    {FaultKind::kJoin, "join"},
}};

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

  // The longer one of the pause that `when` falls into and the next, but for those in `without`.
  std::optional<size_t> longest_behind(double when, const std::set<size_t>& without) const {
    const auto first = static_cast<size_t>(std::ranges::upper_bound(times_, when) - times_.begin());
    std::optional<size_t> longest;
    for (size_t i = std::max<size_t>(first, 1); i < std::min(first + 2, times_.size()); ++i) {
      if (without.contains(i)) continue;
      if (!longest || length(i) > length(*longest)) longest = i;
    }
    return longest;
  }

 private:
  std::vector<double> times_;
  double usual_ = 0;
};

// Below its fault, set in.
std::string recovery_text(double after, const char* what, const std::string& about) {
  return fmt::format("{:>8.2f} s  {:>13}  {:<18} {}", after, "", what, about);
}

Json known(double time) { return time < 0 ? Json() : Json(time); }

}  // namespace

double measure_pauses(const CommitTimes& commits, std::vector<Happened>& happened) {
  const Pauses pauses(commits);
  std::set<size_t> of_stops;
  for (const auto& what : happened) {
    if (what.kind != FaultKind::kStop) continue;
    if (const auto longest = pauses.longest_behind(what.when, {})) of_stops.insert(*longest);
  }
  for (auto& what : happened) {
    const bool stop = what.kind == FaultKind::kStop;
    const auto longest = pauses.longest_behind(what.when, stop ? std::set<size_t>() : of_stops);
    what.held_up = longest ? std::max(0.0, pauses.length(*longest) - pauses.usual()) : -1;
    what.went_on = longest ? pauses.end(*longest) : -1;
  }
  return pauses.usual();
}

Spread spread_of(const std::vector<Happened>& happened, FaultKind kind) {
  std::vector<double> values;
  for (const auto& what : happened) {
    if (what.kind == kind && what.held_up >= 0) values.push_back(what.held_up);
  }
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size() - 1)))];
  };
  return {values.size(), at(0.5), at(0.99), values.back()};
}

std::string happened_text(const Happened& what) {
  return fmt::format("{:>8.2f} s  step {:>6}  {:<20} worker {}", what.after, what.step, what.name,
                     what.whom);
}

std::string went_on_text(const Happened& what) {
  return recovery_text(
      what.after + what.went_on - what.when, "going on",
      fmt::format("held up for {:.0f} ms by {} of {}", 1000 * what.held_up, what.name, what.whom));
}

std::string in_again_text(const Happened& what, const std::string& whom, double when) {
  return recovery_text(
      what.after + when - what.when, what.kind == FaultKind::kJoin ? "is in" : "in again",
      fmt::format("worker {}, {:.2f} s after {}", whom, when - what.when, what.name));
}

std::vector<std::string> pauses_text(const std::vector<Happened>& happened, double step_seconds) {
  std::vector<std::string> lines = {
      fmt::format("the others were held up for (less a step of {:.1f} ms):", 1000 * step_seconds)};
  for (const auto& [kind, name] : kShown) {
    const Spread spread = spread_of(happened, kind);
    if (spread.count == 0) continue;
    lines.push_back(fmt::format(
        "  {:<20} {:>4} times: median {:>6.0f} ms, 99 % {:>6.0f} ms, longest {:>6.0f} ms", name,
        spread.count, 1000 * spread.median, 1000 * spread.worst99, 1000 * spread.worst));
  }
  return lines;
}

Json pauses_json(const std::vector<Happened>& happened) {
  Json kinds = Json::object();
  for (const auto& [kind, name] : kShown) {
    const Spread spread = spread_of(happened, kind);
    if (spread.count == 0) continue;
    kinds[name] = {{"count", spread.count},
                   {"median", spread.median},
                   {"p99", spread.worst99},
                   {"longest", spread.worst}};
  }
  return kinds;
}

Json timeline_json(const std::vector<Happened>& happened) {
  Json timeline = Json::array();
  for (const auto& what : happened) {
    timeline.push_back({{"time", what.when},
                        {"step", what.step},
                        {"fault", what.name},
                        {"worker", what.whom},
                        {"held_up", what.held_up},
                        {"went_on", known(what.went_on)},
                        {"in_again", known(what.in_again)}});
  }
  return timeline;
}

}  // namespace muster::cli
