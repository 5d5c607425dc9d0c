#include "muster/store/backoff.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "muster/base/random.h"

namespace muster::store {

double Backoff::draw() {
  const auto bits =
      philox({static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)},
             {static_cast<uint32_t>(draws_), static_cast<uint32_t>(draws_ >> 32), 0, 0});
  ++draws_;
  return static_cast<double>(bits[0]) / 4294967296.0;
}

Duration Backoff::delay(int times) {
  const double factor = std::pow(2.0, std::min(times, 40) - 1);
  const double whole = std::min(seconds(options_.most), seconds(options_.first) * factor);
  const std::chrono::duration<double> jittered(whole * (0.5 + 0.5 * draw()));
  return std::chrono::duration_cast<Duration>(jittered);
}

Moment Backoff::start_at(Moment now) {
  if (now >= gate_) return now;
  return gate_ + Duration(static_cast<int64_t>(static_cast<double>(spread_.count()) * draw()));
}

Moment Backoff::failed(Moment now, Moment started, int tries) {
  // Requests that were under way together fail together: that counts once.
  if (level_ == 0 || started >= last_failure_) {
    ++level_;
    last_failure_ = now;
    if (level_ >= options_.shared_from) {
      spread_ = delay(level_);
      gate_ = std::max(gate_, now + spread_);
    }
  }
  return std::max(now + delay(tries), start_at(now));
}

bool Backoff::succeeded(Moment started) {
  // An answer to what was asked before the failure does not show that the server is back.
  if (level_ == 0 || started < last_failure_) return false;
  const bool all_waited = level_ >= options_.shared_from;
  level_ = 0;
  gate_ = Moment{};
  return all_waited;
}

void ReadTimes::add(uint64_t bytes, Duration took) {
  auto& [last, next] = classes_[static_cast<size_t>(std::bit_width(bytes))];
  if (last.size() < kKept) {
    last.push_back(took);
    return;
  }
  last[next] = took;
  next = (next + 1) % kKept;
}

std::optional<Duration> ReadTimes::p95(uint64_t bytes) const {
  auto sorted = classes_[static_cast<size_t>(std::bit_width(bytes))].last;
  if (sorted.size() < kEnough) return std::nullopt;
  const auto place = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() * 95 / 100);
  std::nth_element(sorted.begin(), place, sorted.end());
  return *place;
}

Duration hedge_after(const HedgeOptions& options, const ReadTimes& times, uint64_t bytes) {
  const auto known = times.p95(bytes);
  if (!known) return bytes < options.small ? options.unknown_small : options.unknown_large;
  const auto scaled = std::chrono::duration_cast<Duration>(options.factor * *known);
  return std::max(options.least, scaled);
}

}  // namespace muster::store
