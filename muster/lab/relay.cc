#include "muster/lab/relay.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <random>

#include "muster/base/clock.h"

namespace muster::lab {
namespace {

using std::chrono::steady_clock;

constexpr size_t kMostPacket = 65536 + 64;
// Packets of one descriptor in a row, so that the others get their turn.
constexpr int kInARow = 64;

struct Packet {
  Moment due;
  std::vector<std::byte> bytes;
};

class Relayed {
 public:
  Relayed(const RelayedLink& link, uint64_t seed) : link_(link), random_(seed) {}

  int host() const { return link_.host; }
  int hub() const { return link_.hub; }
  std::optional<Moment> next_due() const {
    return held_.empty() ? std::nullopt : std::optional(held_.front().due);
  }

  void from_host(Moment now) {
    for (int i = 0; i < kInARow; ++i) {
      const ssize_t n = ::read(link_.host, buffer_.data(), buffer_.size());
      if (n <= 0) return;
      const uint32_t loss = link_.control->loss_ppm.load(std::memory_order_relaxed);
      if (loss > 0 && random_() % 1'000'000 < loss) continue;
      const auto delay = std::chrono::microseconds(link_.control->delay_us.load());
      const auto size = static_cast<size_t>(n);
      if (delay.count() == 0 && held_.empty()) {
        pass(link_.hub, buffer_.data(), size);
      } else if (held_bytes_ + size <= kMostHeldBack) {
        // Packets do not overtake each other when the delay is made shorter.
        const Moment due = held_.empty() ? now + delay : std::max(now + delay, held_.back().due);
        held_.push_back({due, {buffer_.begin(), buffer_.begin() + n}});
        held_bytes_ += size;
      }
    }
  }

  void from_hub() {
    for (int i = 0; i < kInARow; ++i) {
      const ssize_t n = ::read(link_.hub, buffer_.data(), buffer_.size());
      if (n <= 0) return;
      pass(link_.host, buffer_.data(), static_cast<size_t>(n));
    }
  }

  void release(Moment now) {
    for (; !held_.empty() && held_.front().due <= now; held_.pop_front()) {
      pass(link_.hub, held_.front().bytes.data(), held_.front().bytes.size());
      held_bytes_ -= held_.front().bytes.size();
    }
  }

 private:
  // What the device does not take is lost.
  static void pass(int to, const std::byte* bytes, size_t size) {
    [[maybe_unused]] const ssize_t written = ::write(to, bytes, size);
  }

  RelayedLink link_;
  std::mt19937_64 random_;
  std::deque<Packet> held_;
  size_t held_bytes_ = 0;
  std::array<std::byte, kMostPacket> buffer_;
};

timespec until(Moment due, Moment now) {
  const auto left = std::max(due - now, Duration(0));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
}

}  // namespace

void relay(const std::vector<RelayedLink>& links, int stop, uint64_t seed) {
  std::deque<Relayed> relayed;
  std::vector<pollfd> set = {{.fd = stop, .events = POLLIN, .revents = 0}};
  for (const auto& link : links) {
    relayed.emplace_back(link, seed + relayed.size());
    set.push_back({.fd = link.host, .events = POLLIN, .revents = 0});
    set.push_back({.fd = link.hub, .events = POLLIN, .revents = 0});
  }
  while (true) {
    std::optional<Moment> due;
    for (const auto& r : relayed) {
      const auto next = r.next_due();
      if (next && (!due || *next < *due)) due = next;
    }
    timespec timeout{};
    if (due) timeout = until(*due, steady_clock::now());
    if (::ppoll(set.data(), set.size(), due ? &timeout : nullptr, nullptr) < 0 && errno != EINTR) {
      return;
    }
    if (set[0].revents != 0) return;
    const Moment now = steady_clock::now();
    for (size_t i = 0; i < relayed.size(); ++i) {
      relayed[i].release(now);
      if (set[1 + 2 * i].revents != 0) relayed[i].from_host(now);
      if (set[2 + 2 * i].revents != 0) relayed[i].from_hub();
    }
  }
}

}  // namespace muster::lab
