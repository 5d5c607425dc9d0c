#include "muster/roster/lanes.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "muster/base/check.h"

namespace muster::roster {

double lanes_seconds(size_t lanes, int32_t lane_threads, double lane_seconds) {
  const auto width = static_cast<size_t>(std::max(lane_threads, 1));
  const size_t rounds = (lanes + width - 1) / width;
  return static_cast<double>(rounds) * lane_seconds;
}

double smooth(double estimate, double measured) {
  if (measured <= 0) return estimate;
  if (estimate <= 0) return measured;
  // A quarter of the way, and no single measurement counts for more than twice the estimate.
  return estimate + 0.25 * (std::min(measured, 2 * estimate) - estimate);
}

namespace {

constexpr double kRounding = 1 + 1e-9;

struct Cost {
  double lane_seconds = 1;
  int32_t lane_threads = 1;
  double of(size_t lanes) const { return lanes_seconds(lanes, lane_threads, lane_seconds); }
  // The most lanes that are done within `limit`.
  size_t room(double limit) const {
    const double rounds = limit * kRounding / lane_seconds;
    if (rounds >= 1e9) return std::numeric_limits<int32_t>::max();
    return static_cast<size_t>(rounds) * static_cast<size_t>(std::max(lane_threads, 1));
  }
};

// Unknown speeds are taken as the median of the known ones. `known` says whether there was any.
std::vector<Cost> costs_of(std::span<const LaneWorker> workers, bool& known) {
  std::vector<double> speeds;
  for (const LaneWorker& worker : workers) {
    if (worker.lane_seconds > 0) speeds.push_back(worker.lane_seconds);
  }
  known = !speeds.empty();
  double median = 1;
  if (known) {
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    median = *middle;
  }
  std::vector<Cost> costs;
  for (const LaneWorker& worker : workers) {
    costs.push_back({worker.lane_seconds > 0 ? worker.lane_seconds : median, worker.lane_threads});
  }
  return costs;
}

double slowest(std::span<const Cost> costs, std::span<const size_t> counts) {
  double result = 0;
  for (size_t i = 0; i < costs.size(); ++i) result = std::max(result, costs[i].of(counts[i]));
  return result;
}

// Adds `more` lanes to `counts`, each to whoever finishes it first, and nobody above its `most`.
void hand_out(std::span<const Cost> costs, size_t more, std::span<const size_t> most,
              std::vector<size_t>& counts) {
  struct Offer {
    double seconds;
    double filled;  // lanes per slot before this one
    size_t worker;
    bool operator>(const Offer& other) const {
      if (seconds != other.seconds) return seconds > other.seconds;
      if (filled != other.filled) return filled > other.filled;
      return worker > other.worker;
    }
  };
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  const auto offer = [&](size_t i) {
    if (counts[i] >= most[i]) return;
    const double filled = static_cast<double>(counts[i]) / std::max(costs[i].lane_threads, 1);
    offers.push({costs[i].of(counts[i] + 1), filled, i});
  };
  for (size_t i = 0; i < costs.size(); ++i) offer(i);
  for (; more > 0; --more) {
    MUSTER_CHECK(!offers.empty(), "lanes need a worker");
    const size_t i = offers.top().worker;
    offers.pop();
    ++counts[i];
    offer(i);
  }
}

// What each worker has now, without lanes that do not exist or that two claim; and the lanes
// without a worker.
std::vector<std::vector<int32_t>> present(std::span<const LaneWorker> workers, int32_t lanes,
                                          std::vector<int32_t>& orphans) {
  std::vector<bool> taken(static_cast<size_t>(lanes), false);
  std::vector<std::vector<int32_t>> result;
  for (const LaneWorker& worker : workers) {
    auto& own = result.emplace_back();
    for (const int32_t lane : worker.lanes) {
      if (lane < 0 || lane >= lanes || taken[static_cast<size_t>(lane)]) continue;
      taken[static_cast<size_t>(lane)] = true;
      own.push_back(lane);
    }
    std::ranges::sort(own);
  }
  for (int32_t lane = 0; lane < lanes; ++lane) {
    if (!taken[static_cast<size_t>(lane)]) orphans.push_back(lane);
  }
  return result;
}

}  // namespace

LanePlan plan_lanes(std::span<const LaneWorker> workers, const LaneOptions& options) {
  MUSTER_CHECK(options.lanes >= 0 && (options.lanes == 0 || !workers.empty()),
               "lanes need a worker");
  LanePlan plan;
  if (workers.empty()) return plan;
  bool known = false;
  const std::vector<Cost> costs = costs_of(workers, known);
  std::vector<int32_t> pool;
  plan.lanes = present(workers, options.lanes, pool);
  plan.orphans = static_cast<int32_t>(pool.size());
  const std::vector<size_t> unlimited(workers.size(), std::numeric_limits<size_t>::max());

  std::vector<size_t> counts;
  for (const auto& own : plan.lanes) counts.push_back(own.size());
  hand_out(costs, pool.size(), unlimited, counts);
  const double before = slowest(costs, counts);

  std::vector<size_t> best(workers.size(), 0);
  hand_out(costs, static_cast<size_t>(options.lanes), unlimited, best);
  double after = slowest(costs, best);

  if (after * kRounding < before * (1 - options.gain)) {
    // As few moves as that shortest step allows: only what is above a worker's room leaves it.
    std::vector<size_t> room;
    for (size_t i = 0; i < workers.size(); ++i) {
      room.push_back(costs[i].room(after));
      while (plan.lanes[i].size() > room[i]) {
        pool.push_back(plan.lanes[i].back());
        plan.lanes[i].pop_back();
        ++plan.moves;
      }
      counts[i] = plan.lanes[i].size();
    }
    hand_out(costs, pool.size(), room, counts);
    std::ranges::sort(pool);
  } else {
    after = before;
  }
  auto next = pool.begin();
  for (size_t i = 0; i < workers.size(); ++i) {
    auto& own = plan.lanes[i];
    while (own.size() < counts[i]) own.push_back(*next++);
    std::ranges::sort(own);
  }
  plan.step_seconds = known ? after : 0;
  plan.before_seconds = known ? before : 0;
  return plan;
}

}  // namespace muster::roster
