#include "tools/muster-launch/verify/hung_process.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace muster::cli {
namespace {

std::vector<pid_t> threads_that_compute(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code failed;
  const auto folder = fmt::format("/proc/{}/task", process);
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string number = entry.path().filename().string();
    pid_t thread = 0;
    std::from_chars(number.data(), number.data() + number.size(), thread);
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (computes(name, thread == process)) threads.push_back(thread);
  }
  return threads;
}

}  // namespace

bool computes(std::string_view thread_name, bool is_main) {
  return is_main || thread_name.starts_with("lane") || thread_name == "sum";
}

Result<HungProcess> HungProcess::make(pid_t process, bool child) {
  HungProcess hung(process, child);
  for (const pid_t thread : threads_that_compute(process)) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
      if (errno == ESRCH) continue;  // it has just ended
      return io_error(errno, fmt::format("cannot stop the threads of process {}", process));
    }
    hung.threads_.push_back(thread);
    ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
  }
  if (!hung.threads_.empty()) return hung;
  return Error(ErrorKind::kInternal, "process {} is gone", process);
}

HungProcess::HungProcess(HungProcess&& other) noexcept
    : process_(other.process_), child_(other.child_), threads_(std::exchange(other.threads_, {})) {}

HungProcess& HungProcess::operator=(HungProcess&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  process_ = other.process_;
  child_ = other.child_;
  threads_ = std::exchange(other.threads_, {});
  return *this;
}

HungProcess::~HungProcess() { let_go(); }

void HungProcess::let_go() {
  for (const pid_t thread : threads_) ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
}

// Whoever traces a thread hears of its end first; the process is over for its parent once we have.
bool HungProcess::ended() {
  std::erase_if(threads_, [&](pid_t thread) {
    if (thread == process_ && child_) return kill(process_, 0) != 0;  // its parent takes note: us
    int status = 0;
    const pid_t seen = waitpid(thread, &status, WNOHANG | __WALL);
    if (seen == 0) return false;
    return seen < 0 || WIFEXITED(status) || WIFSIGNALED(status);
  });
  return threads_.empty();
}

Status check_tracing(Children& children) {
  launch::Streams streams;
  streams.write_nothing = true;
  MUSTER_TRY(const pid_t pid, children.start("/bin/sh", {"-c", "exec sleep 60"}, streams));
  const auto hung = HungProcess::make(pid, true);
  children.kill_now(pid);
  if (hung.ok()) return {};
  return Error(ErrorKind::kUsage,
               "--faults hang needs ptrace, which this system does not permit ({}); leave hang out",
               hung.error().message());
}

}  // namespace muster::cli
