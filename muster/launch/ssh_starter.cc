#include "muster/launch/ssh_starter.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "muster/base/shell.h"
#include "muster/launch/error_file.h"

namespace muster::launch {

// sshd starts every command in a session of its own, so signal 0 means: the shell, the watchdog,
// the reader, the worker and what it started, and nobody else.
//
// The shell handles signals (with nothing) rather than ignoring them: what is ignored stays ignored
// in the worker. Watchdog and reader ignore them, for they must go on; their output is closed, for
// sshd waits until everybody has closed it. The worker's parent is the shell, and it sees by
// MUSTER_LAUNCHER_PID if that is killed.
//
// POSIX shell has no `read` with a time limit. So the reader sends SIGALRM to the watchdog at every
// line, and the watchdog counts the seconds since the last one. Until it is ready for the signal it
// inherits that it is ignored.
std::string remote_script(std::chrono::seconds silence) {
  constexpr int kLook = 2;  // seconds; each look costs a process
  return fmt::format(
      "exec 3<&0; trap : INT TERM HUP QUIT USR1 USR2; trap '' ALRM; "
      "(trap '' INT TERM HUP QUIT USR1 USR2; n=0; trap n=0 ALRM; "
      "while [ $n -lt {} ]; do n=$((n+{})); sleep {}; done; kill -s KILL 0) "
      "</dev/null >/dev/null 2>&1 3<&- & dog=$!; "
      "(trap '' INT TERM HUP QUIT USR1 USR2; "
      "while read -r s; do kill -s ALRM $dog; [ \"$s\" = - ] || kill -s \"$s\" 0; done; "
      "kill -s KILL 0) <&3 >/dev/null 2>&1 & trap - ALRM; "
      "MUSTER_LAUNCHER_PID=$$ \"$@\" </dev/null 3<&-; code=$?; kill -s KILL $! $dog; exit $code",
      silence.count(), kLook, kLook);
}

namespace {

class SshProcess final : public Process {
 public:
  SshProcess(pid_t pid, int control) : pid_(pid), control_(control) {}
  ~SshProcess() override { ::close(control_); }
  SshProcess(const SshProcess&) = delete;
  SshProcess& operator=(const SshProcess&) = delete;

  pid_t pid() const override { return pid_; }
  int64_t worker_process() const override { return 0; }

  void send(int signal) override {
    switch (signal) {
      case SIGKILL:  // the connection ends, and the worker with it
        kill(-pid_, SIGKILL);
        break;
      case SIGTSTP:
      case SIGWINCH:
        break;
      default:
        write_line(sigabbrev_np(signal));
    }
  }

  bool wants_keepalive() const override { return true; }
  void keep_alive() override { write_line("-"); }

  // A shell tells of a signal as 128 plus its number. 130 and 143 are exit codes of the worker's
  // own, too.
  Ending ending(const Ending& seen) const override {
    const int number = seen.exit_code - 128;
    const bool own = number == SIGINT || number == SIGTERM;
    if (seen.signal != 0 || number < 1 || number > SIGRTMAX || own) return seen;
    return {0, number};
  }

 private:
  void write_line(const char* word) const {
    const std::string line = fmt::format("{}\n", word);
    // So little always fits; if ssh is gone, so is whom to tell.
    (void)::send(control_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  pid_t pid_;
  int control_;
};

std::string error_path(const std::string& folder, const std::string& id) {
  return fmt::format("{}/{}.err", folder, id);
}

// A variable as it is here, or one thread per operation.
std::string threads(const char* name) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes it
  return fmt::format("{}={}", name, value == nullptr ? "1" : value);
}

}  // namespace

std::vector<std::string> ssh_words(const RemoteSlot& slot, std::chrono::seconds silence) {
  const Host& host = slot.host;
  // BatchMode: never ask; there is nobody to answer. The others: notice a lost connection.
  std::vector<std::string> words = {"-T",
                                    "-o",
                                    "BatchMode=yes",
                                    "-o",
                                    "ConnectTimeout=10",
                                    "-o",
                                    "ServerAliveInterval=5",
                                    "-o",
                                    "ServerAliveCountMax=4",
                                    "-o",
                                    "LogLevel=ERROR"};
  for (const auto& option : host.options) words.insert(words.end(), {"-o", option});
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
  if (host.port != 0) words.insert(words.end(), {"-p", fmt::format("{}", host.port)});
  if (!host.identity.empty()) {
    words.insert(words.end(), {"-o", "IdentitiesOnly=yes", "-i", host.identity});
  }
  words.insert(words.end(), {"--", host.host});
  std::string command =
      fmt::format("exec env {} {} sh -c {} sh", shell_quoted(threads("OMP_NUM_THREADS")),
                  shell_quoted(threads("MKL_NUM_THREADS")), shell_quoted(remote_script(silence)));
  for (const auto& word : slot.command) command += " " + shell_quoted(word);
  words.push_back(std::move(command));
  return words;
}

Result<std::unique_ptr<Process>> SshStarter::start(const std::string& id) {
  const auto& slot = options_.slots.at(id);
  MUSTER_TRY(const auto errors, ErrorFile::open(error_path(options_.folder, id)));
  begins_[id] = errors.begin();
  // A socket rather than a pipe: writing to one whose reader is gone need not raise a signal.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return io_error(errno, "cannot make a socket");
  }
  Streams streams;
  streams.in = ends[1];
  streams.err = errors.fd();
  auto pid = spawn(options_.program, ssh_words(slot, options_.silence), held_, streams);
  ::close(ends[1]);
  if (!pid.ok()) {
    ::close(ends[0]);
    return std::move(pid).error();
  }
  return std::unique_ptr<Process>(new SshProcess(*pid, ends[0]));
}

std::string SshStarter::last_words(const std::string& id, int lines) const {
  const auto begin = begins_.find(id);
  return last_lines(error_path(options_.folder, id), begin == begins_.end() ? 0 : begin->second,
                    lines);
}

}  // namespace muster::launch
