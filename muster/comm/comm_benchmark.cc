// What a Group costs beside bare Gloo, between two processes on this machine over loopback TCP.
//
// Both do the same sum in turn, in the same two processes, with the same vectorised addition; noise
// on a shared machine comes and goes within a second, so what is compared is the median of each.
// Bare Gloo is its own connectFullMesh and gloo::allreduce as a program would call it. The Group is
// held to TCP (shared:0), or may use shared memory as it does between members on one machine
// (shared:1). Counters:
//   group_us, gloo_us      median time of one allreduce
//   ratio                  of these
//   group_cpu_us, gloo_cpu_us   processor time of both processes together, mean
// Forming: from the exchange of addresses to a group that can be used, by number of members.
// Abort: from abort() to the return of an allreduce that was blocked by a peer that did not come.
// Killed: from SIGKILL of one process to the error on the last survivor.
// Every sum is verified.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/comm/comm_benchmarking.h"
#include "muster/comm/group_testing.h"
#include "muster/comm/process_testing.h"

namespace muster::comm {
namespace {

using std::chrono::steady_clock;

std::unique_ptr<Group> join(const std::string& folder, int rank, int size, bool shared_memory) {
  FileRendezvous rendezvous(folder);
  auto group = make_gloo_group({.device = *GlooDevice::open("127.0.0.1"),
                                .rendezvous = &rendezvous,
                                .rank = rank,
                                .names = test_names(size),
                                .shared_memory = shared_memory});
  MUSTER_CHECK(group.ok(), group.ok() ? "" : group.error().message());
  return *std::move(group);
}

void AllreduceBesideGloo(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  const bool shared_memory = state.range(1) != 0;
  const auto bytes = static_cast<size_t>(state.range(2));
  for ([[maybe_unused]] const auto _ : state) {
    const MeetingFolder folder;
    std::filesystem::create_directory(folder.path() + "/bare");
    Processes processes(size, [&](int rank, Report& report) {
      const auto group = join(folder.path(), rank, size, shared_memory);
      BareGloo bare(folder.path() + "/bare", "127.0.0.1", rank, size);
      // As many as fit in about a second; several at a time, so that processor time can be
      // measured.
      const int batch = bytes <= (64 << 10) ? 20 : bytes <= (1 << 20) ? 5 : 1;
      const int rounds = bytes <= (1 << 20) ? 60 : bytes <= (16 << 20) ? 30 : 12;
      const Times t = compare(*group, bare, bytes, batch, rounds);
      report.finish(
          fmt::format("{} {} {} {}", t.group_us, t.gloo_us, t.group_cpu_us, t.gloo_cpu_us));
    });
    Times sum;
    for (int r = 0; r < size; ++r) {
      if (!processes.wait_done(r)) return state.SkipWithError("a process did not finish");
      Times t;
      std::sscanf(processes.report(r).message, "%lf %lf %lf %lf", &t.group_us, &t.gloo_us,
                  &t.group_cpu_us, &t.gloo_cpu_us);
      sum.group_us += t.group_us / size;
      sum.gloo_us += t.gloo_us / size;
      sum.group_cpu_us += t.group_cpu_us;
      sum.gloo_cpu_us += t.gloo_cpu_us;
    }
    state.SetIterationTime(sum.group_us * 1e-6);
    state.counters["group_us"] = sum.group_us;
    state.counters["gloo_us"] = sum.gloo_us;
    state.counters["ratio"] = sum.group_us / sum.gloo_us;
    state.counters["group_cpu_us"] = sum.group_cpu_us;
    state.counters["gloo_cpu_us"] = sum.gloo_cpu_us;
    state.counters["cpu_ratio"] = sum.group_cpu_us / sum.gloo_cpu_us;
  }
}
BENCHMARK(AllreduceBesideGloo)
    ->ArgsProduct({{2, 4},
                   {0, 1},
                   {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 24 << 20,
                    64 << 20}})
    ->ArgNames({"members", "shared", "bytes"})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

void Forming(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  constexpr int kRounds = 15;
  for ([[maybe_unused]] const auto _ : state) {
    const MeetingFolder folder;
    for (int i = 0; i < kRounds; ++i) {
      std::filesystem::create_directory(folder.path() + "/" + std::to_string(i));
    }
    Processes processes(size, [&](int rank, Report& report) {
      const auto device = *GlooDevice::open("127.0.0.1");
      std::vector<double> ms;
      std::unique_ptr<Group> previous;
      for (int i = 0; i < kRounds; ++i) {
        FileRendezvous rendezvous(folder.path() + "/" + std::to_string(i));
        // All begin at the same moment, as survivors of a roster do.
        if (previous != nullptr) (void)previous->barrier();
        const auto before = steady_clock::now();
        auto group = make_gloo_group(
            {.device = device, .rendezvous = &rendezvous, .rank = rank, .names = test_names(size)});
        MUSTER_CHECK(group.ok(), group.ok() ? "" : group.error().message());
        if (previous != nullptr) {
          ms.push_back(
              std::chrono::duration<double, std::milli>(steady_clock::now() - before).count());
        }
        previous = *std::move(group);
      }
      (void)previous->barrier();
      report.finish(fmt::format("{}", median(ms)));
    });
    double slowest = 0;
    for (int r = 0; r < size; ++r) {
      if (!processes.wait_done(r)) return state.SkipWithError("a process did not finish");
      slowest = std::max(slowest, std::atof(processes.report(r).message));
    }
    state.SetIterationTime(slowest * 1e-3);
  }
}
BENCHMARK(Forming)
    ->ArgName("members")
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->Arg(16)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void Abort(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  for ([[maybe_unused]] const auto _ : state) {
    std::vector<double> ms;
    for (int round = 0; round < 15; ++round) {
      auto groups = make_groups(Backend::kGloo, size);
      std::vector<int32_t> data(4 << 20);
      std::thread aborter;
      steady_clock::time_point aborted;
      aborter = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        aborted = steady_clock::now();
        groups[0]->abort("a benchmark");
      });
      const Status status = groups[0]->allreduce_sum(std::span(data));
      const auto ended = steady_clock::now();
      aborter.join();
      MUSTER_CHECK(!status.ok(), "it was to fail");
      ms.push_back(std::chrono::duration<double, std::milli>(ended - aborted).count());
    }
    state.SetIterationTime(median(ms) * 1e-3);
    state.counters["worst_ms"] = *std::max_element(ms.begin(), ms.end());
  }
}
BENCHMARK(Abort)->ArgName("members")->Arg(2)->Arg(4)->Arg(8)->Iterations(1)->UseManualTime()->Unit(
    benchmark::kMillisecond);

// From SIGKILL of one process to the error on the last of the others, in the middle of sums.
void Killed(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  const bool shared_memory = state.range(1) != 0;
  for ([[maybe_unused]] const auto _ : state) {
    std::vector<double> ms;
    for (int round = 0; round < 9; ++round) {
      const MeetingFolder folder;
      Processes processes(size, [&](int rank, Report& report) {
        const auto group = join(folder.path(), rank, size, shared_memory);
        std::vector<int32_t> data(1 << 20);
        while (group->allreduce_sum(std::span(data)).ok()) ++report.progress;
        report.finish("");
      });
      if (!processes.wait_progress(1, 5)) return state.SkipWithError("no progress");
      const auto killed = steady_clock::now().time_since_epoch().count();
      processes.signal(1, SIGKILL);
      int64_t last = 0;
      for (int r = 0; r < size; ++r) {
        if (r == 1) continue;
        if (!processes.wait_done(r)) return state.SkipWithError("a process did not notice");
        last = std::max<int64_t>(last, processes.report(r).ended_ns);
      }
      ms.push_back(static_cast<double>(last - killed) * 1e-6);
    }
    state.SetIterationTime(median(ms) * 1e-3);
    state.counters["worst_ms"] = *std::max_element(ms.begin(), ms.end());
  }
}
BENCHMARK(Killed)
    ->ArgNames({"members", "shared"})
    ->ArgsProduct({{2, 4}, {0, 1}})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// What a collective costs where there is nobody to talk to.
void Solo(benchmark::State& state) {
  auto group = solo_group("alone");
  std::vector<int32_t> data(1 << 20);
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(group->allreduce_sum(std::span(data)));
  }
}
BENCHMARK(Solo);

// Members as threads of one process.
void Local(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  auto groups = make_groups(Backend::kLocal, 2);
  std::thread other([&] {
    std::vector<int32_t> data(bytes / 4);
    while (groups[1]->allreduce_sum(std::span(data)).ok()) {
    }
  });
  std::vector<int32_t> data(bytes / 4);
  for ([[maybe_unused]] const auto _ : state) {
    MUSTER_CHECK(groups[0]->allreduce_sum(std::span(data)).ok(), "it works");
  }
  groups[0]->abort("done");
  other.join();
}
BENCHMARK(Local)->ArgName("bytes")->Arg(4 << 10)->Arg(1 << 20)->Arg(16 << 20)->UseRealTime();

}  // namespace
}  // namespace muster::comm
