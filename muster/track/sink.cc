#include "muster/track/sink.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace muster::track {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see standard_output()
  return value ? value : "";
}

}  // namespace

FdSink::FdSink(int fd, std::string_view term, std::string_view no_color)
    : fd_(fd),
      terminal_(::isatty(fd) == 1 && !term.empty() && term != "dumb"),
      colour_(terminal_ && no_color.empty()) {}

FdSink FdSink::standard_output() {
  return FdSink(STDOUT_FILENO, environment("TERM"), environment("NO_COLOR"));
}

void FdSink::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      // Somebody made it non-blocking. A JSON line must not be cut in two, so wait.
      struct pollfd ready = {fd_, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

int FdSink::width() const {
  struct winsize size = {};
  return ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace muster::track
