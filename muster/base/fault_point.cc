#include "muster/base/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace muster {
namespace {

constexpr std::array<std::string_view, kFaultPoints> kNames = {
    "none",     "before-commit", "after-commit", "checkpoint",
    "transfer", "forming",       "recovery",     "evaluation"};

void on_signal(int number) { internal::aimed_fault = static_cast<uint8_t>(number - SIGRTMIN); }

}  // namespace

namespace internal {

std::atomic<uint8_t> aimed_fault{0};

void die_at_fault_point(FaultPoint) {
  kill(getpid(), SIGKILL);
  while (true) pause();  // nothing after the point may happen, not even for a moment
}

}  // namespace internal

std::string_view fault_point_name(FaultPoint point) { return kNames[static_cast<size_t>(point)]; }

std::optional<FaultPoint> find_fault_point(std::string_view name) {
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<FaultPoint>(i);
  }
  return std::nullopt;
}

int fault_signal(FaultPoint point) { return SIGRTMIN + static_cast<int>(point); }

void arm_fault_points() {
  const char* wanted = std::getenv("MUSTER_FAULTS");  // NOLINT(concurrency-mt-unsafe): see header
  if (wanted == nullptr || std::string_view(wanted) != "1") return;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 1; i < kFaultPoints; ++i) sigaction(SIGRTMIN + i, &action, nullptr);
}

}  // namespace muster
