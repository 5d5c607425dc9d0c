#include "muster/lab/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "muster/base/fd.h"

extern char** environ;  // NOLINT: POSIX has it nowhere else

namespace muster::lab {

Status run_shell(const std::string& line) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return io_error(errno, "cannot make a pipe");
  const Fd in(ends[0]);
  Fd out(ends[1]);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDERR_FILENO);
  std::string shell = "/bin/sh";
  std::string option = "-c";
  std::string text = "PATH=$PATH:/usr/sbin:/sbin; " + line;
  std::array<char*, 4> words = {shell.data(), option.data(), text.data(), nullptr};
  pid_t pid = 0;
  const int failure = ::posix_spawn(&pid, shell.c_str(), &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) return io_error(failure, "cannot start /bin/sh");
  out.reset();
  std::string said;
  std::array<char, 512> buffer{};
  while (true) {
    const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    said.append(buffer.data(), static_cast<size_t>(n));
  }
  int status = -1;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended == pid && status == 0) return {};
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return Error(ErrorKind::kMachine, "`{}` failed: {}", line, said.empty() ? "no message" : said);
}

}  // namespace muster::lab
