#include "tools/muster/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "muster/base/text.h"
#include "muster/launch/process.h"

namespace muster::cli {
namespace {

using launch::HeldSignals;

bool is_program(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

// Beside this program, then on PATH; empty: nowhere.
std::string look_for(const std::string& name, const WorkerPlaces& places) {
  std::vector<std::string> folders = {places.own_folder};
  for (auto& folder : split(places.path, ':')) folders.push_back(std::move(folder));
  for (const auto& folder : folders) {
    const std::string program = fmt::format("{}/{}", folder, name);
    if (!folder.empty() && is_program(program)) return program;
  }
  return "";
}

// Passes signals on until the worker has ended.
launch::Ending keep_door(pid_t pid, const HeldSignals& held) {
  while (true) {
    if (const auto end = launch::reap(pid)) return *end;
    const int number = sigwaitinfo(&held.set(), nullptr);
    switch (number) {
      case -1:  // interrupted, as by a debugger
      case SIGCHLD:
        break;
      case SIGTSTP:
        kill(-pid, SIGTSTP);
        raise(SIGSTOP);  // returns when somebody continues us; SIGCONT then waits in the queue
        break;
      case SIGCONT:
        kill(-pid, SIGCONT);
        break;
      default:
        kill(-pid, number);
    }
  }
}

struct Pipe {
  int read = -1;
  int write = -1;
  Status open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return io_error(errno, "cannot make a pipe");
    read = ends[0];
    write = ends[1];
    return {};
  }
  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
  ~Pipe() {
    close_write();
    if (read >= 0) ::close(read);
  }
};

// Reads both pipes until both are closed at the other end.
void drain(const Pipe& out, const Pipe& err, WorkerEnd& end) {
  std::array<pollfd, 2> polled = {pollfd{out.read, POLLIN, 0}, pollfd{err.read, POLLIN, 0}};
  const std::array<std::string*, 2> into = {&end.output, &end.errors};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    if (poll(polled.data(), polled.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(polled[i].fd, buffer.data(), buffer.size());
      if (got > 0) {
        into[i]->append(buffer.data(), static_cast<size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        polled[i].fd = -1;
      }
    }
  }
}

}  // namespace

WorkerPlaces WorkerPlaces::of_process(std::string given) {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes it
    return value == nullptr ? "" : value;
  };
  WorkerPlaces places;
  places.given = std::move(given);
  places.environment = variable("MUSTER_WORKER");
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) places.own_folder = self.parent_path().string();
  places.path = variable("PATH");
  return places;
}

Result<std::string> find_worker(const WorkerPlaces& places) {
  for (const auto& [named, by] :
       {std::pair(places.given, "--worker"), std::pair(places.environment, "MUSTER_WORKER")}) {
    if (named.empty()) continue;
    if (is_program(named)) return named;
    return Error(ErrorKind::kUsage, "{} names '{}', which is not a program that can be run", by,
                 named);
  }
  const std::string program = look_for("muster-worker", places);
  if (!program.empty()) return program;
  return Error(ErrorKind::kMachine,
               "muster-worker is neither beside muster ({}) nor on PATH; build it (`./dev build`), "
               "or name it with --worker or MUSTER_WORKER",
               places.own_folder);
}

Result<std::string> find_program(const std::string& name) {
  const auto places = WorkerPlaces::of_process("");
  const std::string program = look_for(name, places);
  if (!program.empty()) return program;
  return Error(ErrorKind::kMachine,
               "{} is neither beside muster ({}) nor on PATH; build it (`./dev build`)", name,
               places.own_folder);
}

Result<launch::Ending> run_worker(const std::string& program,
                                  const std::vector<std::string>& arguments) {
  const HeldSignals held;
  MUSTER_TRY(const pid_t pid, launch::spawn(program, arguments, held, {}));
  return keep_door(pid, held);
}

std::string WorkerEnd::last_line() const { return split(std::string(trim(errors)), '\n').back(); }

std::string WorkerEnd::last_message() const {
  constexpr std::string_view kName = "muster: ";
  const auto line = last_line();
  return line.starts_with(kName) ? line.substr(kName.size()) : line;
}

Result<WorkerEnd> capture_worker(const std::string& program,
                                 const std::vector<std::string>& arguments) {
  Pipe out;
  Pipe err;
  MUSTER_RETURN_IF_ERROR(out.open());
  MUSTER_RETURN_IF_ERROR(err.open());
  WorkerEnd end;
  pid_t pid = 0;
  {
    // Spawned with the mask of now, in a group of its own. Whoever presses Ctrl-C ends us, and the
    // worker with us (MUSTER_LAUNCHER_PID): there is nothing to save.
    HeldSignals held;
    MUSTER_TRY(pid, launch::spawn(program, arguments, held, {-1, out.write, err.write, true}));
  }
  out.close_write();
  err.close_write();
  drain(out, err, end);
  while (true) {
    if (const auto ending = launch::reap(pid)) {
      static_cast<launch::Ending&>(end) = *ending;
      return end;
    }
    siginfo_t ignored;
    waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED | WNOWAIT);
  }
}

}  // namespace muster::cli
