#include "muster/comm/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace muster::comm {
namespace {

static_assert(sizeof(SharedSegment::Header) <= 4096);
static_assert(std::atomic<uint32_t>::is_always_lock_free);  // or it would not work across processes

// Which running kernel this is: two containers on one machine have the same, two machines never.
const std::string& boot_id() {
  static const std::string kept = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id;
  }();
  return kept;
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout,
                   nullptr, 0);
}

}  // namespace

std::string host_id() {
  struct stat shm{};
  const bool there = ::stat("/dev/shm", &shm) == 0;
  return fmt::format("{}:{:x}", boot_id(), there ? static_cast<uint64_t>(shm.st_dev) : 0);
}

SharedSegment::SharedSegment(Fd fd, void* memory, size_t length)
    : fd_(std::move(fd)), memory_(memory), length_(length) {}

SharedSegment::~SharedSegment() { ::munmap(memory_, length_); }

std::unique_ptr<SharedSegment> SharedSegment::create(size_t bytes) {
  Fd fd(::memfd_create("muster-group", MFD_CLOEXEC));
  const size_t length = kDataOffset + bytes;
  // Allocated now: a machine that is out of memory should say so here, not by SIGBUS in a step.
  if (!fd || ::posix_fallocate(fd.get(), 0, static_cast<off_t>(length)) != 0) return nullptr;
  void* memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  std::random_device random;
  auto* header = new (memory) Header();
  header->token = uint64_t{random()} << 32 | random();
  return std::unique_ptr<SharedSegment>(new SharedSegment(std::move(fd), memory, length));
}

std::string SharedSegment::address() const {
  const auto* header = static_cast<const Header*>(memory_);
  return fmt::format("{} {} {} {}", boot_id(), ::getpid(), fd_.get(), header->token);
}

std::unique_ptr<SharedSegment> SharedSegment::open(std::string_view address, size_t bytes) {
  std::vector<std::string> words(1);
  for (const char c : address) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back().push_back(c);
    }
  }
  if (words.size() != 4 || words[0].empty() || words[0] != boot_id()) return nullptr;
  const auto digits = [](const std::string& text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!digits(words[1]) || !digits(words[2]) || !digits(words[3])) return nullptr;
  // Another container may have another process of that number, or none: the token tells.
  Fd fd(::open(fmt::format("/proc/{}/fd/{}", words[1], words[2]).c_str(),
               O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const size_t length = kDataOffset + bytes;
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<size_t>(info.st_size) != length) {
    return nullptr;
  }
  void* memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  auto segment = std::unique_ptr<SharedSegment>(new SharedSegment(Fd(), memory, length));
  if (std::to_string(segment->header().token) != words[3]) return nullptr;
  return segment;
}

void SharedSegment::ring() {
  Header& h = header();
  h.bell.value.fetch_add(1, std::memory_order_seq_cst);
  if (h.sleeping.value.load(std::memory_order_seq_cst) != 0) {
    futex(h.bell.value, FUTEX_WAKE, 1, nullptr);
  }
}

void SharedSegment::wait_bell(uint32_t seen, Moment deadline) {
  Header& h = header();
  const auto left = std::max(deadline - std::chrono::steady_clock::now(), Duration(0));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
  h.sleeping.value.store(1, std::memory_order_seq_cst);
  // The kernel compares again: a ring since `seen` was read is not missed.
  futex(h.bell.value, FUTEX_WAIT, seen, &timeout);
  h.sleeping.value.store(0, std::memory_order_relaxed);
}

}  // namespace muster::comm
