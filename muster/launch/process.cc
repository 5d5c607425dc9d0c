#include "muster/launch/process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace muster::launch {
namespace {

constexpr std::array kPassedOn = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP};

bool is_ignored(int number) {
  struct sigaction current{};
  sigaction(number, nullptr, &current);
  return current.sa_handler == SIG_IGN;
}

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

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&set_);
  for (const int number : kPassedOn) add_unless_ignored(number);
  sigaddset(&set_, SIGCONT);
  sigaddset(&set_, SIGCHLD);
  signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would hide how a worker ended
  // Inherited by the worker: it may write to a terminal whose foreground is ours (stty tostop).
  signal(SIGTTOU, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

HeldSignals::~HeldSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  signal(SIGTTOU, SIG_DFL);
}

// A held signal is queued even if ignored, so those must not be held at all.
void HeldSignals::add_unless_ignored(int number) {
  if (!is_ignored(number)) sigaddset(&set_, number);
}

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    const HeldSignals& held, const Streams& streams) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &held.before());

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (streams.in >= 0) {
    posix_spawn_file_actions_adddup2(&files, streams.in, STDIN_FILENO);
  } else if (streams.read_nothing || isatty(STDIN_FILENO) == 1) {
    // A process outside the terminal's foreground that reads from it is stopped: give it nothing.
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  if (streams.out >= 0) {
    posix_spawn_file_actions_adddup2(&files, streams.out, STDOUT_FILENO);
  } else if (streams.write_nothing) {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
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

std::optional<Ending> reap(pid_t pid) {
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = waitpid(pid, &status, WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != pid) return std::nullopt;
  // A process whose threads we trace also tells us when they stop.
  if (!WIFSIGNALED(status) && !WIFEXITED(status)) return std::nullopt;
  Ending end;
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  return end;
}

}  // namespace muster::launch
