#include "tools/muster-launch/verify/children.h"

#include <signal.h>
#include <time.h>

#include <chrono>

namespace muster::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 2ms;
// `muster train` promises to be over 3 s after it was told to stop.
constexpr auto kStoppingTakes = 4s;

}  // namespace

Children::~Children() {
  for (const pid_t pid : running_) {
    kill(-pid, SIGTERM);
    kill(-pid, SIGCONT);
  }
  for (auto waited = 0ms; waited < kStoppingTakes && !running_.empty(); waited += kLook) {
    pause_a_bit();
    reap_all();
  }
  for (const pid_t pid : running_) kill(-pid, SIGKILL);
  while (!running_.empty()) {
    pause_a_bit();
    reap_all();
  }
}

Result<pid_t> Children::start(const std::string& program, const std::vector<std::string>& arguments,
                              launch::Streams streams) {
  streams.read_nothing = true;
  MUSTER_TRY(const pid_t pid, launch::spawn(program, arguments, held_, streams));
  running_.insert(pid);
  endings_.erase(pid);  // of somebody who had this number before
  return pid;
}

void Children::kill_now(pid_t pid) {
  if (running_.contains(pid)) kill(-pid, SIGKILL);
  while (!ended(pid)) pause_a_bit();
}

std::optional<launch::Ending> Children::ended(pid_t pid) {
  reap_all();
  const auto found = endings_.find(pid);
  return found == endings_.end() ? std::nullopt : std::optional(found->second);
}

void Children::reap_all() {
  std::erase_if(running_, [&](pid_t pid) {
    const auto ending = launch::reap(pid);
    if (ending) endings_[pid] = *ending;
    return ending.has_value();
  });
}

Status Children::check_signals() {
  const timespec at_once{};
  while (true) {
    const int number = sigtimedwait(&held_.set(), nullptr, &at_once);
    if (number <= 0) return {};
    if (number != SIGINT && number != SIGTERM && number != SIGHUP && number != SIGQUIT) continue;
    stopped_by_ = number;
    return Error(ErrorKind::kInterrupted, "stopped by {}", launch::signal_name(number));
  }
}

void Children::pause_a_bit() {
  const timespec a_bit{0, std::chrono::nanoseconds(kLook).count()};
  nanosleep(&a_bit, nullptr);
}

}  // namespace muster::cli
