#include "muster/train/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "muster/base/check.h"
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

StopSignals::StopSignals(bool hangups) {
  MUSTER_CHECK(!in_use.exchange(true), "one StopSignals at a time");
  received_signal = 0;
  received_at = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Under nohup it is ignored, and stays so.
  struct sigaction before{};
  sigaction(SIGHUP, nullptr, &before);
  hears_hangups_ = hangups && before.sa_handler != SIG_IGN;
  if (hears_hangups_) sigaction(SIGHUP, &action, nullptr);
}

StopSignals::~StopSignals() {
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  if (hears_hangups_) signal(SIGHUP, SIG_DFL);
  in_use = false;
}

int StopSignals::received() const { return received_signal; }

}  // namespace muster::train
