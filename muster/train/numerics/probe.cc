#include "muster/train/numerics/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "muster/base/clock.h"
#include "muster/base/thread.h"
#include "muster/train/numerics/fingerprint.h"
#include "muster/train/step/team.h"

namespace muster::train {
namespace {

constexpr int64_t kSide = 512;

// Multiplications per second of `members` threads that each multiply their own matrices, in
// GFLOP/s: the median of several short rounds, since a shared machine has bad moments.
double measure_gflops(int members) {
  Team team(members);
  std::vector<double> rounds;
  constexpr int kRepeats = 8;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    team.run([](int) {
      const torch::NoGradGuard no_grad;
      auto a = torch::ones({kSide, kSide});
      auto b = torch::ones({kSide, kSide});
      auto c = torch::empty({kSide, kSide});
      for (int i = 0; i < kRepeats; ++i) torch::mm_out(c, a, b);
    });
    const double took = seconds(std::chrono::steady_clock::now() - start);
    rounds.push_back(2e-9 * kSide * kSide * kSide * kRepeats * members / took);
  }
  std::nth_element(rounds.begin(), rounds.begin() + 3, rounds.end());
  return rounds[3];
}

}  // namespace

nlohmann::json probe(int threads) {
  if (threads <= 0) threads = usable_cores();
  const auto print = take_fingerprint();
  nlohmann::json kernels;
  for (const auto& [name, hash] : print.kernels) kernels[name] = hash.hex();
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the environment changes only while there is one thread
  const char* cbwr = std::getenv("MKL_CBWR");
  const auto gloo = check_gloo();
  return {{"torch_version", TORCH_VERSION},
          {"gloo", gloo.ok() ? *gloo : gloo.error().message()},
          {"capability", kernel_capability()},
          {"fingerprint", print.combined().hex()},
          {"kernels", kernels},
          {"mkl_cbwr", cbwr == nullptr ? "" : cbwr},
          {"lane_threads", threads},
          {"gflops_one_lane", measure_gflops(1)},
          {"gflops_all_lanes", measure_gflops(threads)}};
}

}  // namespace muster::train
