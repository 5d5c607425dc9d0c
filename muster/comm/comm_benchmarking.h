// What the benchmarks of this module share: Gloo without Muster, and sums by one and the other in
// turn.
#pragma once

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "muster/base/check.h"
#include "muster/comm/group.h"

namespace muster::comm {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Gloo as its own examples use it.
class BareGloo {
 public:
  BareGloo(const std::string& folder, const std::string& address, int rank, int size)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    auto device = gloo::transport::tcp::CreateDevice(address.c_str());
    gloo::rendezvous::FileStore store(folder);
    context_->connectFullMesh(store, device);
  }

  void allreduce(std::vector<int32_t>& data) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data.data(), data.size());
    options.setReduceFunction([](void* out, const void* a, const void* b, size_t n) {
      MUSTER_CHECK(out == a, "Gloo adds in place");
      reduce_into(Reduction::kSumInt32, out, b, n);
    });
    options.setTag(tag_++);
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t tag_ = 0;
};

// One member's times for both, in turn.
struct Times {
  double group_us = 0, gloo_us = 0, group_cpu_us = 0, gloo_cpu_us = 0;
};

// `batch` sums at a time of one and then of the other, `rounds` times. Each sum is verified.
inline Times compare(Group& group, BareGloo& bare, size_t bytes, int batch, int rounds) {
  const int rank = group.rank();
  const int size = group.size();
  std::vector<int32_t> data(bytes / 4);
  std::vector<double> group_us, gloo_us;
  Times times;
  // Each sum multiplies the last by the number of members, so that nothing needs to be filled in
  // between and every call is verified by the last of a batch.
  const auto run = [&](bool ours, std::vector<double>& us, double& cpu) {
    std::fill(data.begin(), data.end(), rank + 1);
    auto expected = static_cast<uint32_t>(size + 1);  // twice the sum of ranks over the size
    const double cpu_before = cpu_seconds();
    for (int i = 0; i < batch; ++i) {
      const auto before = std::chrono::steady_clock::now();
      if (ours) {
        const Status status = group.allreduce_sum(std::span(data));
        MUSTER_CHECK(status.ok(), status.ok() ? "" : status.error().message());
      } else {
        bare.allreduce(data);
      }
      us.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before)
              .count());
      expected *= static_cast<uint32_t>(size);
    }
    cpu += (cpu_seconds() - cpu_before) * 1e6 / batch / rounds;
    const auto twice = [](int32_t x) { return 2 * static_cast<uint32_t>(x); };
    MUSTER_CHECK(twice(data.front()) == expected && twice(data.back()) == expected, "a wrong sum");
  };
  for (int i = 0; i < std::min(3, rounds); ++i) {  // to warm up
    double ignored = 0;
    run(true, group_us, ignored);
    run(false, gloo_us, ignored);
  }
  group_us.clear();
  gloo_us.clear();
  for (int i = 0; i < rounds; ++i) {
    // Whoever is first has the cache to himself; so it alternates.
    if (i % 2 == 0) run(true, group_us, times.group_cpu_us);
    run(false, gloo_us, times.gloo_cpu_us);
    if (i % 2 == 1) run(true, group_us, times.group_cpu_us);
  }
  (void)group.barrier();
  times.group_us = median(group_us);
  times.gloo_us = median(gloo_us);
  return times;
}

}  // namespace muster::comm
