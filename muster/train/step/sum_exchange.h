// Adds up the sums of all workers while backward still runs.
//
// A thread of its own ("sum") goes through the buckets of a GradientSum in their order, which is
// that of backward and the same on every worker: it waits until this worker's lanes have all added
// to a bucket, sums it over the group, and goes on. With one worker there is nothing to add and no
// thread is woken. With a FewBits it does the bucket's part of that instead, also with one worker.
#pragma once

#include <atomic>
#include <cstdint>

#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/comm/group.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/step/few_bits.h"
#include "muster/train/step/gradient_sum.h"

namespace muster::train {

class SumExchange {
 public:
  // `few`: may be null; else its groups are what is summed.
  explicit SumExchange(FewBits* few = nullptr) : few_(few) {}
  ~SumExchange();
  SumExchange(const SumExchange&) = delete;
  SumExchange& operator=(const SumExchange&) = delete;

  // The lanes are about to begin (after GradientSum::begin). Both must live until finish().
  // Sums of few bits are packed in any case.
  void begin(GradientSum& sum, comm::Group& group, const comm::OpOptions& options);
  // Each summed bucket is progress.
  void set_vitals(const Vitals* vitals) { vitals_ = vitals; }
  // All lanes have been added, or given up (GradientSum::flush or abandon was called). Returns when
  // every bucket holds the sum over all workers, or with the first failure.
  Status finish();
  // Whether finish() would fail: lanes need not go on.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  void serve();
  Status exchange();
  Status exchange(size_t bucket);

  FewBits* const few_;
  GradientSum* sum_ = nullptr;  // of the present round
  const Vitals* vitals_ = nullptr;
  comm::Group* group_ = nullptr;  // of the present round
  comm::OpOptions options_;
  Status status_;  // of the present round, once it is over
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> begun_{0};  // rounds
  std::atomic<uint32_t> ended_{0};
  std::atomic<bool> stop_{false};
  Thread thread_;
};

}  // namespace muster::train
