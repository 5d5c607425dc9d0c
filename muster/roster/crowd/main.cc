// muster_roster_crowd: what a coordinator with many workers costs, and how quick it is.
//
//   muster_roster_crowd --workers 2000
//
// The coordinator runs in a process of its own, so that its processor time and memory can be read.
// This process holds the workers: a real connection and a Follower each (crowd.h), with the usual
// heartbeat. Both share the machine, so all times include what the workers cost.
//
// Printed, in this order:
//   start     until all workers have connected, have a roster and have exchanged addresses
//   quiet     the coordinator's share of one core, and its memory, while nothing but heartbeats
//             happens
//   status    how long `muster status` waits for its answer, connecting included
//   roster    after a worker's connection broke: until the next roster has arrived at half of the
//             others and at the last one; and until all have exchanged addresses for the next group
//   back      until a worker that joins is in a group with all others
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "muster/base/text.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/crowd/coordinator_process.h"
#include "muster/roster/crowd/crowd.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 120s;  // something is wrong
// What --check wants: the median of the statuses and of the rosters' arrivals at the last worker.
constexpr double kStatusWithin = 0.050;
constexpr double kRosterWithin = 1.0;

struct Arguments {
  size_t workers = 2000;
  int losses = 5;
  int seconds = 10;
  bool events = false;
  bool check = false;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}
double longest(const std::vector<double>& values) { return *std::ranges::max_element(values); }

void quiet(const CoordinatorProcess& coordinator, const Arguments& arguments) {
  const double before = coordinator.processor_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(arguments.seconds));
  const double share = (coordinator.processor_seconds() - before) / arguments.seconds;
  fmt::print("quiet    {:.0f} % of one core, {:.0f} MB ({:.0f} kB for each worker), {} threads\n",
             100 * share, static_cast<double>(coordinator.memory_bytes()) * 1e-6,
             static_cast<double>(coordinator.memory_bytes()) * 1e-3 /
                 static_cast<double>(arguments.workers),
             coordinator.threads());
}

Result<double> status(const CoordinatorProcess& coordinator, size_t workers, const Clock& clock) {
  std::vector<double> took;
  for (int i = 0; i < 21; ++i) {
    std::this_thread::sleep_for(20ms);
    const Moment begin = clock.now();
    MUSTER_TRY(const StatusReport report, fetch_status(coordinator.address(), kPatience));
    took.push_back(seconds(clock.now() - begin));
    if (report.workers.size() != workers || report.roster.members.size() != workers) {
      return Error(ErrorKind::kInternal, "the status has {} workers, not {}", report.workers.size(),
                   workers);
    }
  }
  fmt::print("status   {:.1f} ms, longest {:.1f} ms\n", 1e3 * median(took), 1e3 * longest(took));
  return median(took);
}

Result<double> losses(Crowd& crowd, int count, const Clock& clock) {
  std::vector<double> half;
  std::vector<double> last;
  std::vector<double> together;
  std::vector<double> back;
  for (int i = 0; i < count; ++i) {
    MUSTER_TRY(const Crowd::Loss loss, crowd.lose_one(kPatience));
    half.push_back(seconds(loss.roster_at_half));
    last.push_back(seconds(loss.roster_at_last));
    together.push_back(seconds(loss.together));
    const Moment begin = clock.now();
    crowd.add(1);
    MUSTER_RETURN_IF_ERROR(crowd.wait_together(kPatience));
    back.push_back(seconds(clock.now() - begin));
  }
  fmt::print(
      "roster   at half of the others after {:.0f} ms, at the last after {:.0f} ms, longest {:.0f} "
      "ms; addresses exchanged after {:.0f} ms\n",
      1e3 * median(half), 1e3 * median(last), 1e3 * longest(last), 1e3 * median(together));
  fmt::print("back     {:.0f} ms, longest {:.0f} ms\n", 1e3 * median(back), 1e3 * longest(back));
  return median(last);
}

// One descriptor for each connection, in both processes.
Status allow_descriptors(size_t workers) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = workers + 200;
  if (limit.rlim_cur >= wanted) return {};
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return {};
  return Error(ErrorKind::kUsage, "{} workers need {} descriptors, and {} are allowed: ulimit -n",
               workers, wanted, limit.rlim_max);
}

Status run(const Arguments& arguments) {
  MUSTER_RETURN_IF_ERROR(allow_descriptors(arguments.workers));
  Options options;
  options.job = "crowd";
  options.lanes = static_cast<int32_t>(arguments.workers);
  options.expected = options.lanes;
  options.gather = kPatience;
  // All workers share the processors of one machine with the coordinator, and two thousand of them
  // take seconds for their first roster: none of them is to be taken for lost meanwhile. The
  // heartbeat is the usual one.
  options.lease = kPatience;
  MUSTER_TRY(const CoordinatorProcess coordinator,
             CoordinatorProcess::start(options, arguments.events));
  const SystemClock clock;
  const Moment begin = clock.now();
  Crowd crowd(coordinator.address(), options.job, clock);
  crowd.add(arguments.workers);
  MUSTER_RETURN_IF_ERROR(crowd.wait_together(kPatience));
  fmt::print("{} workers, heartbeat every {} s\n", with_commas(arguments.workers),
             seconds(options.heartbeat));
  fmt::print("start    {:.1f} s, of which the coordinator computed {:.1f} s\n",
             seconds(clock.now() - begin), coordinator.processor_seconds());
  std::this_thread::sleep_for(500ms);
  quiet(coordinator, arguments);
  MUSTER_TRY(const double answered, status(coordinator, arguments.workers, clock));
  MUSTER_TRY(const double arrived, losses(crowd, arguments.losses, clock));
  if (arguments.check && (answered > kStatusWithin || arrived > kRosterWithin)) {
    return Error(ErrorKind::kInternal, "too slow: a status may take {} s, a roster {} s",
                 kStatusWithin, kRosterWithin);
  }
  return {};
}

}  // namespace
}  // namespace muster::roster

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, also into a file
  muster::roster::Arguments arguments;
  CLI::App app("Measures a coordinator with many real connections.");
  app.add_option("--workers", arguments.workers, "how many")->capture_default_str();
  app.add_option("--losses", arguments.losses, "workers lost, one at a time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", arguments.seconds, "how long to look at heartbeats alone")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--events", arguments.events, "show what the coordinator says");
  app.add_flag("--check", arguments.check, "fail if status or rosters are too slow");
  CLI11_PARSE(app, argc, argv);
  const muster::Status done = muster::roster::run(arguments);
  if (done.ok()) return 0;
  fmt::print(stderr, "muster_roster_crowd: {}\n", done.error().message());
  return 1;
}
