#include "tools/muster-launch/verify/stderr_capture.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace muster::cli {

Result<StderrCapture> StderrCapture::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return io_error(errno, fmt::format("cannot make '{}'", path));
  return StderrCapture(file);
}

StderrCapture::StderrCapture(StderrCapture&& other) noexcept
    : file_(std::exchange(other.file_, -1)), offset_(other.offset_) {}

StderrCapture::~StderrCapture() {
  if (file_ >= 0) close(file_);
}

std::string StderrCapture::news() {
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t count = 0; (count = pread(file_, piece.data(), piece.size(), offset_)) > 0;) {
    text.append(piece.data(), static_cast<size_t>(count));
    offset_ += count;
  }
  return text;
}

}  // namespace muster::cli
