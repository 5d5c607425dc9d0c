// What the yardsticks bare_readers.cc and bare_parquet.cc share: samples of raw pixels as training
// needs them, and the processor time that they took.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

namespace muster::bench {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): one thread
}

// Of all threads, since the program started.
inline double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Pixels to floats, and what there is to report.
class Samples {
 public:
  Samples() {
    for (size_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<float>(i) / 255.0F;
  }
  void take(std::string_view pixels) {
    floats_.resize(pixels.size());
    for (size_t i = 0; i < pixels.size(); ++i) {
      floats_[i] = table_[static_cast<uint8_t>(pixels[i])];
    }
    sum_ += floats_.empty() ? 0.0 : static_cast<double>(floats_[count_ % floats_.size()]);
    ++count_;
  }
  // Prints {"samples": 10000, "seconds": of the processor, "sum": of a pixel of each sample}.
  void report() const {
    std::printf("{\"samples\": %zu, \"seconds\": %.6f, \"sum\": %.3f}\n", count_,
                processor_seconds(), sum_);
  }

 private:
  std::array<float, 256> table_{};
  std::vector<float> floats_;
  size_t count_ = 0;
  double sum_ = 0;  // of one pixel of each, so that nothing is left out
};

}  // namespace muster::bench
