#include "muster/comm/watch_frames.h"

#include <algorithm>
#include <cerrno>

namespace muster::comm {

bool read_up_to(const Fd& fd, std::string& into, size_t most, int* error) {
  char buffer[4096];
  while (into.size() < most) {
    const size_t wanted = std::min(sizeof(buffer), most - into.size());
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): MSG_DONTWAIT, it does not block
    const ssize_t n = ::recv(fd.get(), buffer, wanted, MSG_DONTWAIT);
    if (n > 0) {
      into.append(buffer, static_cast<size_t>(n));
      continue;
    }
    if (n == 0) return false;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (error != nullptr) *error = errno;
    return false;
  }
  return true;
}

void write_now(const Fd& fd, std::string_view bytes) {
  (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace muster::comm
