// Allreduce of many members beside bare Gloo:
//
//   muster_comm_benchmark --benchmark_filter=Many
//
// members   processes
// hosts     0: all talk by TCP; 1: all on one host, with shared memory; more: as many namespaces,
//           which needs root
// by        0: the algorithm that is best by our own rule; 1: exchange of parts; 2: halving
// bytes     of the data
//
// group_us and gloo_us are medians over the sums of a member, averaged over the members; ratio is
// their quotient, cpu_ratio that of the processor time of all processes. Every sum is verified.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "muster/comm/comm_benchmarking.h"
#include "muster/comm/group_testing.h"
#include "muster/comm/hosts_testing.h"
#include "muster/comm/process_testing.h"

namespace muster::comm {
namespace {

void ManyMembers(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  const int hosts = static_cast<int>(state.range(1));
  const auto algorithm = static_cast<Allreduce>(state.range(2));
  const auto bytes = static_cast<size_t>(state.range(3));
  std::optional<TestHosts> made;
  if (hosts > 1) {
    const auto reason = TestHosts::unavailable();
    if (!reason.empty()) return state.SkipWithError(reason.c_str());
    made.emplace(hosts);
  }
  for ([[maybe_unused]] const auto _ : state) {
    const MeetingFolder folder;
    std::filesystem::create_directory(folder.path() + "/bare");
    Processes processes(size, [&](int rank, Report& report) {
      std::string address = "127.0.0.1";
      if (made) {
        made->enter(rank % hosts);
        address = TestHosts::address(rank % hosts);
      }
      FileRendezvous rendezvous(folder.path());
      auto group = make_gloo_group({.device = *GlooDevice::open(address),
                                    .rendezvous = &rendezvous,
                                    .rank = rank,
                                    .names = test_names(size),
                                    .shared_memory = hosts > 0,
                                    .allreduce = algorithm});
      MUSTER_CHECK(group.ok(), group.ok() ? "" : group.error().message());
      BareGloo bare(folder.path() + "/bare", address, rank, size);
      const Times t = compare(**group, bare, bytes, 2, bytes <= (1 << 20) ? 8 : 3);
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
    state.counters["cpu_ratio"] = sum.group_cpu_us / sum.gloo_cpu_us;
  }
}
BENCHMARK(ManyMembers)
    ->ArgNames({"members", "hosts", "by", "bytes"})
    ->ArgsProduct({{16, 64}, {0, 1, 4}, {0}, {4 << 10, 64 << 10, 1 << 20, 16 << 20}})
    ->ArgsProduct({{16}, {0}, {1, 2}, {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace muster::comm
