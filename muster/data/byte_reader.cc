#include "muster/data/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <zlib.h>

namespace muster::data {
namespace {

constexpr size_t kChunk = 256 << 10;
// Deflate's best: a match of 258 bytes in 2 bits.
constexpr uint64_t kMaxRatio = 1032;

bool is_gzip(std::span<const std::byte> start) {
  return start.size() >= 2 && start[0] == std::byte{0x1f} && start[1] == std::byte{0x8b};
}

}  // namespace

struct ByteReader::State {
  std::string name;
  int fd = -1;
  uint64_t raw_size = 0;             // bytes of the file itself
  uint64_t delivered = 0;            // bytes given to the caller
  std::span<const std::byte> input;  // read from the file, not used yet
  std::vector<std::byte> chunk;      // what `input` points into, unless it comes from memory
  bool gzipped = false;
  bool between_members = false;  // at the end of a gzip member
  z_stream inflater{};

  ~State() {
    if (fd >= 0) ::close(fd);
    if (gzipped) inflateEnd(&inflater);
  }

  // Up to into.size() bytes straight from the file, for plain files.
  Result<size_t> read_raw(std::span<std::byte> into) {
    while (true) {
      const ssize_t got = ::read(fd, into.data(), into.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return io_error(errno, fmt::format("cannot read '{}'", name));
    }
  }

  // Makes `input` non-empty unless the file is at its end.
  Status refill() {
    if (!input.empty() || fd < 0) return {};
    MUSTER_TRY(const size_t got, read_raw(chunk));
    input = std::span<const std::byte>(chunk).first(got);
    return {};
  }

  Status start() {
    MUSTER_RETURN_IF_ERROR(refill());
    if (!is_gzip(input)) return {};
    // 15 bits of window; 16 more: expect a gzip header and check its checksum.
    if (inflateInit2(&inflater, 15 + 16) != Z_OK) {
      return Error(ErrorKind::kIo, "cannot start to decompress '{}': out of memory", name);
    }
    gzipped = true;
    return {};
  }

  Result<size_t> read_plain(std::span<std::byte> into) {
    size_t done = std::min(into.size(), input.size());
    if (done > 0) std::memcpy(into.data(), input.data(), done);
    input = input.subspan(done);
    while (fd >= 0 && done < into.size()) {
      MUSTER_TRY(const size_t got, read_raw(into.subspan(done)));
      if (got == 0) break;
      done += got;
    }
    return done;
  }

  Result<size_t> read_gzip(std::span<std::byte> into) {
    size_t done = 0;
    while (done < into.size()) {
      MUSTER_RETURN_IF_ERROR(refill());
      if (between_members) {
        if (input.empty()) break;
        if (!is_gzip(input) || inflateReset(&inflater) != Z_OK) {
          return Error(ErrorKind::kData,
                       "'{}' goes on after the end of its gzipped contents; it is damaged: fetch "
                       "or write it again",
                       name);
        }
        between_members = false;
      }
      if (input.empty()) {
        return Error(ErrorKind::kData,
                     "'{}' is cut short: its gzipped contents have no end; fetch it again", name);
      }
      constexpr size_t kMost = std::numeric_limits<uInt>::max();
      const auto in = static_cast<uInt>(std::min(input.size(), kMost));
      const auto out = static_cast<uInt>(std::min(into.size() - done, kMost));
      // zlib does not write to its input; its interface is older than const.
      inflater.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
      inflater.avail_in = in;
      inflater.next_out = reinterpret_cast<Bytef*>(into.data() + done);
      inflater.avail_out = out;
      const int code = inflate(&inflater, Z_NO_FLUSH);
      input = input.subspan(in - inflater.avail_in);
      done += out - inflater.avail_out;
      if (code == Z_STREAM_END) {
        between_members = true;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return Error(ErrorKind::kData,
                     "'{}' is damaged: its gzipped contents do not decompress "
                     "({}); fetch it again",
                     name, inflater.msg != nullptr ? inflater.msg : zError(code));
      }
    }
    return done;
  }
};

ByteReader::ByteReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteReader::~ByteReader() = default;
ByteReader::ByteReader(ByteReader&&) noexcept = default;
ByteReader& ByteReader::operator=(ByteReader&&) noexcept = default;

Result<ByteReader> ByteReader::open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->name = path;
  state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state->fd < 0) {
    const int why = errno;
    Error error = io_error(why, fmt::format("cannot open '{}'", path));
    return Error(ErrorKind::kIo, "{}; {}", error.message(),
                 why == ENOENT || why == ENOTDIR
                     ? "check the path, or fetch the data first (scripts/fetch_data.sh)"
                     : "check the path and its permissions");
  }
  struct stat info{};
  if (::fstat(state->fd, &info) != 0) {
    return io_error(errno, fmt::format("cannot look at '{}'", path));
  }
  if (S_ISDIR(info.st_mode)) {
    return Error(ErrorKind::kData, "'{}' is a directory; name the file in it", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(ErrorKind::kData, "'{}' is not a regular file; copy the data into one", path);
  }
  if (info.st_size == 0) return Error(ErrorKind::kData, "'{}' is empty; fetch it again", path);
  ::posix_fadvise(state->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  state->raw_size = static_cast<uint64_t>(info.st_size);
  state->chunk.resize(std::min<uint64_t>(kChunk, state->raw_size));
  MUSTER_RETURN_IF_ERROR(state->start());
  return ByteReader(std::move(state));
}

Result<ByteReader> ByteReader::from_memory(std::span<const std::byte> bytes, std::string name) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  if (bytes.empty()) {
    return Error(ErrorKind::kData, "'{}' is empty; fetch it again", state->name);
  }
  state->raw_size = bytes.size();
  state->input = bytes;
  MUSTER_RETURN_IF_ERROR(state->start());
  return ByteReader(std::move(state));
}

Result<size_t> ByteReader::read(std::span<std::byte> into) {
  auto done = state_->gzipped ? state_->read_gzip(into) : state_->read_plain(into);
  if (done.ok()) state_->delivered += *done;
  return done;
}

uint64_t ByteReader::at_most() const {
  uint64_t total = state_->raw_size;
  if (state_->gzipped) {
    constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max() / kMaxRatio;
    total = std::min(total, kLargest) * kMaxRatio;
  }
  return total - std::min(total, state_->delivered);
}

Result<std::string> ByteReader::read_all() {
  std::string all;
  // A gzipped text is a third of its size: start with a guess, then double.
  size_t target = state_->gzipped ? 4 * state_->raw_size : at_most();
  while (true) {
    const size_t before = all.size();
    all.resize(target + 1);  // one more than expected, to see the end in the same call
    auto got = read(std::as_writable_bytes(std::span(all)).subspan(before));
    if (!got.ok()) return std::move(got).error();
    if (before + *got < all.size()) {
      all.resize(before + *got);
      return all;
    }
    target = 2 * all.size();
  }
}

const std::string& ByteReader::name() const { return state_->name; }

}  // namespace muster::data
