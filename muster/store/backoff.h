// When to try again after a failure, and when to ask a second time. Decisions only: each is a
// function of the time it is given and of what was reported before. Not safe for concurrent use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "muster/base/clock.h"

namespace muster::store {

// Exponential back-off with jitter, shared by the requests of a worker.
//
// One failed request delays only itself. When requests fail one after the other and none succeeds,
// the server is down or overloaded, and it does not help that each request finds out by itself:
// then all requests wait, those that have not failed too, and when the time is over they start
// spread over as long again. The first one that succeeds ends the waiting of all.
class Backoff {
 public:
  struct Options {
    Duration first = std::chrono::milliseconds(100);  // after the first failure, at most
    Duration most = std::chrono::seconds(5);
    int shared_from = 3;  // failures in a row after which all requests wait
  };

  Backoff(Options options, uint64_t seed) : options_(options), seed_(seed) {}

  // When a request that wants to start at `now` may start.
  Moment start_at(Moment now);
  // An attempt that started at `started` failed at `now`; it is the request's `tries`-th failure,
  // from 1. Returns when the request may try again.
  Moment failed(Moment now, Moment started, int tries);
  // An attempt that started at `started` succeeded. Returns whether all requests had to wait: from
  // now on none has to, those that wait already either.
  bool succeeded(Moment started);
  // Failures in a row, as far as all requests together count them.
  int level() const { return level_; }

 private:
  // Half to all of first * 2^(times - 1), at most `most`.
  Duration delay(int times);
  // Uniform in [0, 1).
  double draw();

  Options options_;
  uint64_t seed_;
  uint64_t draws_ = 0;
  int level_ = 0;
  Moment last_failure_;  // the last one that counted
  Moment gate_;          // before it no request starts
  Duration spread_{};
};

// How long reads take, by size: the last ones of each power of two.
class ReadTimes {
 public:
  void add(uint64_t bytes, Duration took);
  // What 95 of 100 reads of about this size do not exceed; nothing as long as too few are known.
  std::optional<Duration> p95(uint64_t bytes) const;

 private:
  static constexpr size_t kKept = 128;
  static constexpr size_t kEnough = 20;
  struct Class {
    std::vector<Duration> last;
    size_t next = 0;
  };
  std::array<Class, 65> classes_;  // by bit width
};

struct HedgeOptions {
  double factor = 2;  // times the p95
  // Never earlier: a busy core delays a read that long.
  Duration least = std::chrono::milliseconds(50);
  // As long as no p95 is known. AWS advises 2 s for small requests, 4 s for larger ones.
  Duration unknown_small = std::chrono::seconds(2);
  Duration unknown_large = std::chrono::seconds(4);
  uint64_t small = uint64_t{512} * 1024;  // bytes
};

// How old a read must be until it is sent a second time.
Duration hedge_after(const HedgeOptions& options, const ReadTimes& times, uint64_t bytes);

}  // namespace muster::store
