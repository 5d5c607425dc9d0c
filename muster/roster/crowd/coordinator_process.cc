#include "muster/roster/crowd/coordinator_process.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "muster/base/clock.h"
#include "muster/roster/coordinator.h"

namespace muster::roster {

namespace {

// Says its address, and ends when the other side closes the pipe.
[[noreturn]] void serve(const Options& options, bool show_events, int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const SystemClock clock;
  CoordinatorOptions all;
  all.roster = options;
  if (show_events) {
    all.on_event = [](const Event& event) { fmt::print(stderr, "{:.200}\n", event.text); };
  }
  auto coordinator = Coordinator::start(std::move(all), clock);
  const std::string said =
      (coordinator.ok() ? (*coordinator)->address() : coordinator.error().message()) + '\n';
  if (write(pipe, said.data(), said.size()) < 0) std::_Exit(1);
  char nothing = 0;
  while (read(pipe, &nothing, 1) < 0 && errno == EINTR) {
  }
  std::_Exit(0);
}

// The value of "Name:   123 kB" in /proc/PID/status.
uint64_t status_value(pid_t process, std::string_view name) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  }
  return 0;
}

}  // namespace

Result<CoordinatorProcess> CoordinatorProcess::start(const Options& options, bool show_events) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error(ErrorKind::kIo, "cannot make a pair of sockets");
  }
  const pid_t process = fork();
  if (process < 0) return Error(ErrorKind::kIo, "cannot start a process");
  if (process == 0) {
    close(ends[0]);
    serve(options, show_events, ends[1]);
  }
  close(ends[1]);
  std::string said;
  char next = 0;
  while (read(ends[0], &next, 1) == 1 && next != '\n') said += next;
  CoordinatorProcess result(process, ends[0], said);
  if (next != '\n' || said.find(' ') != std::string::npos) {
    return Error(ErrorKind::kIo, "the coordinator did not start: {}", said);
  }
  return result;
}

CoordinatorProcess::CoordinatorProcess(CoordinatorProcess&& other) noexcept
    : process_(std::exchange(other.process_, 0)),
      pipe_(std::exchange(other.pipe_, -1)),
      address_(std::move(other.address_)) {}

CoordinatorProcess::~CoordinatorProcess() {
  if (process_ == 0) return;
  close(pipe_);
  waitpid(process_, nullptr, 0);
}

double CoordinatorProcess::processor_seconds() const {
  std::ifstream file(fmt::format("/proc/{}/stat", process_));
  std::string text;
  std::getline(file, text);
  // Fields 14 and 15, counted from 1; the second is in parentheses and may hold anything.
  std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int field = 3; field < 14; ++field) rest >> skipped;
  double user = 0;
  double system = 0;
  rest >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t CoordinatorProcess::memory_bytes() const {
  return status_value(process_, "VmRSS:") * 1024;
}

int CoordinatorProcess::threads() const {
  return static_cast<int>(status_value(process_, "Threads:"));
}

}  // namespace muster::roster
