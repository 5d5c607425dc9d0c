#include "muster/train/signals.h"

#include <signal.h>
#include <unistd.h>

#include "muster/base/check.h"

namespace muster::train {
namespace {

// A signal handler can reach nothing but objects of static storage.
std::atomic<int> received_signal{0};
std::atomic<bool> in_use{false};

void on_signal(int number) {
  int none = 0;
  if (received_signal.compare_exchange_strong(none, number)) return;
  _exit(128 + number);
}

}  // namespace

StopSignals::StopSignals() {
  MUSTER_CHECK(!in_use.exchange(true), "one StopSignals at a time");
  received_signal = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

StopSignals::~StopSignals() {
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  in_use = false;
}

int StopSignals::received() const { return received_signal; }

}  // namespace muster::train
