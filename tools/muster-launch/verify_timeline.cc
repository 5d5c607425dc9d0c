#include "tools/muster-launch/verify_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
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

}  // namespace

double measure_pauses(const CommitTimes& commits, std::vector<Happened>& happened) {
  std::vector<double> times;
  for (const auto& [step, time] : commits) times.push_back(time);
  std::vector<double> pauses;  // pauses[i] ends with times[i + 1]
  for (size_t i = 1; i < times.size(); ++i) pauses.push_back(times[i] - times[i - 1]);
  if (pauses.empty()) return 0;
  auto sorted = pauses;
  std::ranges::sort(sorted);
  const double usual = sorted[sorted.size() / 2];
  for (auto& what : happened) {
    // The first commit behind the fault, and the one after.
    const auto first =
        static_cast<size_t>(std::ranges::upper_bound(times, what.when) - times.begin());
    double longest = -1;
    for (size_t i = std::max<size_t>(first, 1); i < std::min(first + 2, times.size()); ++i) {
      longest = std::max(longest, pauses[i - 1]);
    }
    if (longest >= 0) what.held_up = std::max(0.0, longest - usual);
  }
  return usual;
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
                        {"held_up", what.held_up}});
  }
  return timeline;
}

}  // namespace muster::cli
