#include "muster/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace muster {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return io_error(errno,
                    fmt::format("cannot open '{}' (check the path and its permissions)", path));
  }
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    ::close(fd);
    return Error(ErrorKind::kData, "'{}' is empty or not a regular file", path);
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int why = errno;
  ::close(fd);
  if (start == MAP_FAILED) return io_error(why, fmt::format("cannot map '{}'", path));
  return MappedFile({static_cast<const std::byte*>(start), size});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::expect_random_reads() const {
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_RANDOM);
}

}  // namespace muster
