#include "muster/launch/error_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "muster/base/text.h"

namespace muster::launch {

Result<ErrorFile> ErrorFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return io_error(errno, fmt::format("cannot open '{}'", path));
  return ErrorFile(fd, std::max<int64_t>(0, lseek(fd, 0, SEEK_END)));
}

ErrorFile::ErrorFile(ErrorFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), begin_(other.begin_) {}

ErrorFile::~ErrorFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string last_lines(const std::string& path, int64_t begin, int lines) {
  constexpr int64_t kMost = 64 << 10;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const int64_t end = lseek(fd, 0, SEEK_END);
  const int64_t from = std::max(begin, end - kMost);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, end - from)), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), from);
  ::close(fd);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  text = std::string(trim(text));
  size_t at = text.size();
  for (int i = 0; i < lines && at != std::string::npos && at > 0; ++i) {
    at = text.rfind('\n', at - 1);
  }
  return at == std::string::npos || at == 0 ? text : text.substr(at + 1);
}

}  // namespace muster::launch
