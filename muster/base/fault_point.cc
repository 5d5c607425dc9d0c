#include "muster/base/fault_point.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace muster {
namespace {

constexpr std::array<std::string_view, kFaultPoints> kNames = {
    "none",       "before-commit", "after-commit", "checkpoint", "transfer", "forming", "recovery",
    "evaluation", "round",         "ack",          "confirm",    "copy",     "join",    "save"};

void on_signal(int number) { internal::aimed_fault = static_cast<uint8_t>(number - SIGRTMIN); }

int slow_disk_signal() { return SIGRTMIN + kFaultPoints; }
std::atomic<int32_t> slow_disk_pause{0};
constexpr int kUnits = 1 << 16;  // the signal carries pause * kUnits + total

void on_slow_disk(int, siginfo_t* info, void*) {
  slow_disk_pause = info->si_value.sival_int / kUnits;
  internal::slow_disk_left = info->si_value.sival_int % kUnits;
}

int flip_signal() { return slow_disk_signal() + 1; }
void on_flip(int, siginfo_t* info, void*) {
  internal::bit_to_flip = static_cast<uint32_t>(info->si_value.sival_int);
}

int lie_signal() { return slow_disk_signal() + 2; }
void on_lie(int) { internal::lying = true; }

}  // namespace

namespace internal {

std::atomic<uint8_t> aimed_fault{0};

void die_at_fault_point(FaultPoint) {
  kill(getpid(), SIGKILL);
  while (true) pause();  // nothing after the point may happen, not even for a moment
}

std::atomic<int32_t> slow_disk_left{0};

void wait_for_slow_disk() {
  const int32_t pause = slow_disk_pause;
  slow_disk_left -= pause;
  timespec left{pause / 1000, (pause % 1000) * 1000000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

std::atomic<int64_t> bit_to_flip{-1};
std::atomic<bool> lying{false};

void flip_bit_of(std::span<std::byte> state) {
  // Not one of the last places of a float: the next update of an optimizer's average may round such
  // a change away, so that nothing is wrong any more and nothing is found.
  constexpr uint64_t kBits = 20;
  const auto draw = static_cast<uint64_t>(bit_to_flip.exchange(-1));
  const auto word = draw / kBits % (state.size() / 4);
  const auto bit = 32 * word + (32 - kBits) + draw % kBits;
  state[bit / 8] ^= std::byte{1} << (bit % 8);
}

}  // namespace internal

bool flip_bit(int process, uint32_t draw) {
  sigval value{};
  value.sival_int = static_cast<int>(draw);
  return sigqueue(process, flip_signal(), value) == 0;
}

bool make_lie(int process) { return kill(process, lie_signal()) == 0; }

bool slow_disk(int process, int pause, int total) {
  sigval value{};
  value.sival_int = pause * kUnits + total;
  return sigqueue(process, slow_disk_signal(), value) == 0;
}

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
  for (int i = 0; i < kFaultPoints; ++i) sigaction(SIGRTMIN + i, &action, nullptr);
  struct sigaction slow{};
  slow.sa_sigaction = on_slow_disk;
  slow.sa_flags = SA_RESTART | SA_SIGINFO;
  sigaction(slow_disk_signal(), &slow, nullptr);
  struct sigaction flip{};
  flip.sa_sigaction = on_flip;
  flip.sa_flags = SA_RESTART | SA_SIGINFO;
  sigaction(flip_signal(), &flip, nullptr);
  struct sigaction lie{};
  lie.sa_handler = on_lie;
  lie.sa_flags = SA_RESTART;
  sigaction(lie_signal(), &lie, nullptr);
}

}  // namespace muster
