#include "tools/muster/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "muster/base/text.h"

namespace muster::cli {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
// What the dynamic loader and shells leave with when a program cannot even start.
constexpr int kCannotStart = 127;

bool is_program(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

bool is_ignored(int number) {
  struct sigaction current{};
  sigaction(number, nullptr, &current);
  return current.sa_handler == SIG_IGN;
}

// While it lives, the signals in set() wait in the queue instead of acting on this process.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    for (const int number : kPassedOn) add_unless_ignored(number);
    add_unless_ignored(SIGTSTP);
    sigaddset(&set_, SIGCONT);
    sigaddset(&set_, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would hide how the worker ended
    // Inherited by the worker: it may write to a terminal whose foreground is ours (stty tostop).
    signal(SIGTTOU, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~HeldSignals() {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    signal(SIGTTOU, SIG_DFL);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& set() const { return set_; }
  const sigset_t& before() const { return before_; }

 private:
  // A held signal is queued even if ignored, so those must not be held at all.
  void add_unless_ignored(int number) {
    if (!is_ignored(number)) sigaddset(&set_, number);
  }
  sigset_t set_{};
  sigset_t before_{};
};

// What the worker gets: ours, one thread per operation unless the user chose, and who we are.
class Environment {
 public:
  Environment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!std::string_view(*entry).starts_with("MUSTER_LAUNCHER_PID=")) text_.emplace_back(*entry);
    }
    add_unless_set("OMP_NUM_THREADS", "1");
    add_unless_set("MKL_NUM_THREADS", "1");
    text_.push_back(fmt::format("MUSTER_LAUNCHER_PID={}", getpid()));
    for (auto& entry : text_) pointers_.push_back(entry.data());
    pointers_.push_back(nullptr);
  }
  char** pointers() { return pointers_.data(); }

 private:
  void add_unless_set(std::string_view name, std::string_view value) {
    const std::string start = fmt::format("{}=", name);
    const bool set = std::any_of(text_.begin(), text_.end(),
                                 [&](const auto& entry) { return entry.starts_with(start); });
    if (!set) text_.push_back(start + std::string(value));
  }
  std::vector<std::string> text_;
  std::vector<char*> pointers_;
};

struct Streams {
  int out = -1;  // -1: ours
  int err = -1;
  bool read_nothing = false;
};

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    const HeldSignals& held, const Streams& streams) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &held.before());

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // A process outside the terminal's foreground that reads from it is stopped: give it nothing.
  if (streams.read_nothing || isatty(STDIN_FILENO) == 1) {
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  if (streams.out >= 0) posix_spawn_file_actions_adddup2(&files, streams.out, STDOUT_FILENO);
  if (streams.err >= 0) posix_spawn_file_actions_adddup2(&files, streams.err, STDERR_FILENO);

  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Environment environment;
  pid_t pid = 0;
  const int failure =
      posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), environment.pointers());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failure == ENOEXEC) {
    return Error(ErrorKind::kMachine, "'{}' is not a program for this machine", program);
  }
  if (failure != 0) return io_error(failure, fmt::format("cannot start '{}'", program));
  return pid;
}

// True once the worker has ended and `end` says how.
bool reap(pid_t pid, WorkerEnd& end) {
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = waitpid(pid, &status, WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != pid) return false;
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  return true;
}

// Passes signals on until the worker has ended.
WorkerEnd keep_door(pid_t pid, const HeldSignals& held) {
  WorkerEnd end;
  while (!reap(pid, end)) {
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
  return end;
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

std::string_view meaning(int number) {
  switch (number) {
    case SIGKILL:
      return "somebody ended it, or the kernel did because memory ran out (`dmesg` tells which)";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGABRT:
      return "this is a bug in Muster or in a model of your own; please report it with the log";
    case SIGILL:
      return "it was built for another processor; run `muster doctor`";
    case SIGXCPU:
      return "its limit of processor time is used up (`ulimit -t`)";
    case SIGXFSZ:
      return "a file reached the limit of file size (`ulimit -f`)";
    default:
      return "a signal that it does not handle";
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
  std::vector<std::string> folders = {places.own_folder};
  for (auto& folder : split(places.path, ':')) folders.push_back(std::move(folder));
  for (const auto& folder : folders) {
    const std::string program = folder + "/muster-worker";
    if (!folder.empty() && is_program(program)) return program;
  }
  return Error(ErrorKind::kMachine,
               "muster-worker is neither beside muster ({}) nor on PATH; build it (`./dev build`), "
               "or name it with --worker or MUSTER_WORKER",
               places.own_folder);
}

Result<WorkerEnd> run_worker(const std::string& program,
                             const std::vector<std::string>& arguments) {
  const HeldSignals held;
  MUSTER_TRY(const pid_t pid, spawn(program, arguments, held, {}));
  return keep_door(pid, held);
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
    MUSTER_TRY(pid, spawn(program, arguments, held, {out.write, err.write, true}));
  }
  out.close_write();
  err.close_write();
  drain(out, err, end);
  while (!reap(pid, end)) {
    siginfo_t ignored;
    waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED | WNOWAIT);
  }
  return end;
}

std::optional<Obituary> obituary(const WorkerEnd& end, const std::string& advice) {
  const std::string tail = advice.empty() ? "" : "; " + advice;
  if (end.signal == 0) {
    if (end.exit_code != kCannotStart) return std::nullopt;
    return Obituary{ErrorKind::kMachine,
                    "the worker could not start: a library it needs is missing (above is which; "
                    "`muster doctor` looks further)" +
                        tail,
                    static_cast<int>(ErrorKind::kMachine)};
  }
  const char* name = sigabbrev_np(end.signal);
  const std::string signal_name = name == nullptr ? std::to_string(end.signal) : name;
  const bool asked = end.signal == SIGINT || end.signal == SIGTERM || end.signal == SIGHUP;
  const std::string sentence =
      asked ? fmt::format("stopped by SIG{} before the worker could save", signal_name)
            : fmt::format("the worker was ended by SIG{}: {}", signal_name, meaning(end.signal));
  return Obituary{asked ? ErrorKind::kInterrupted : ErrorKind::kInternal, sentence + tail,
                  128 + end.signal};
}

}  // namespace muster::cli
