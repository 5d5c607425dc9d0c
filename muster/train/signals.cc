#include "muster/train/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "muster/base/one_signal.h"

namespace muster::train {
namespace {

// A signal handler can reach nothing but objects of static storage.
std::atomic<int> received_signal{0};
std::atomic<int64_t> received_at{0};  // milliseconds; 0: nothing came yet
std::atomic<bool> in_use{false};

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// May run in several threads at once: whoever sets the time was the first.
void on_signal(int number) {
  const int64_t now = milliseconds();
  int64_t first = 0;
  if (received_at.compare_exchange_strong(first, now)) {
    received_signal = number;
  } else if (now - first >= kOneSignal.count()) {
    _exit(128 + number);
  }
}

}  // namespace

Result<std::unique_ptr<StopSignals>> StopSignals::listen(bool hangups) {
  if (in_use.exchange(true)) {
    return Error(
        ErrorKind::kJob,
        "this process trains another run already: end its loop before the next one begins");
  }
  return std::unique_ptr<StopSignals>(new StopSignals(hangups));
}

StopSignals::StopSignals(bool hangups) {
  received_signal = 0;
  received_at = 0;
  hear(SIGINT);
  hear(SIGTERM);
  // Under nohup it is ignored, and stays so.
  struct sigaction now{};
  sigaction(SIGHUP, nullptr, &now);
  if (hangups && now.sa_handler != SIG_IGN) hear(SIGHUP);
}

void StopSignals::hear(int number) {
  auto* const place = std::ranges::find(before_, 0, &Before::number);
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  place->number = number;
  sigaction(number, &action, &place->action);
}

StopSignals::~StopSignals() {
  for (const auto& [number, action] : before_) {
    struct sigaction now{};
    if (number == 0 || sigaction(number, nullptr, &now) != 0) continue;
    if (now.sa_handler == on_signal) sigaction(number, &action, nullptr);
  }
  in_use = false;
}

int StopSignals::received() const { return received_signal; }

}  // namespace muster::train
