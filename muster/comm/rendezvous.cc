#include "muster/comm/rendezvous.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "muster/base/check.h"

namespace muster::comm {
namespace {

Error stopped() { return Error(ErrorKind::kIo, "the meeting of the group was stopped"); }

Error twice(int rank) {
  return Error(ErrorKind::kInternal,
               "two members of the group say that they are rank {}: each rank may come once, and a "
               "new group needs a new rendezvous",
               rank);
}

Error other_size(int rank, size_t theirs, int ours) {
  return Error(ErrorKind::kInternal, "rank {} expects a group of {}, this member one of {}", rank,
               theirs, ours);
}

Error missing(const std::vector<int>& ranks, int size) {
  return Error(ErrorKind::kIo, "rank {} of {} did not come to form the group in time",
               fmt::join(ranks, ", "), size);
}

void check_rank(int rank, int size) {
  MUSTER_CHECK(size > 0 && rank >= 0 && rank < size, "a rank must be below the size");
}

}  // namespace

Result<std::vector<std::string>> MemoryRendezvous::exchange(int rank, int size,
                                                            const std::string& blob,
                                                            Moment deadline, std::stop_token stop) {
  check_rank(rank, size);
  std::unique_lock lock(mutex_);
  if (blobs_.empty()) blobs_.resize(static_cast<size_t>(size));
  if (blobs_.size() != static_cast<size_t>(size)) {
    return Error(ErrorKind::kInternal, "others expect a group of {}, rank {} one of {}",
                 blobs_.size(), rank, size);
  }
  auto& mine = blobs_[static_cast<size_t>(rank)];
  if (mine) return twice(rank);
  mine = blob;
  changed_.notify_all();

  const auto complete = [&] {
    for (const auto& b : blobs_) {
      if (!b) return false;
    }
    return true;
  };
  if (!changed_.wait_until(lock, stop, deadline, complete)) {
    if (stop.stop_requested()) return stopped();
    std::vector<int> absent;
    for (int r = 0; r < size; ++r) {
      if (!blobs_[static_cast<size_t>(r)]) absent.push_back(r);
    }
    return missing(absent, size);
  }
  std::vector<std::string> all;
  all.reserve(blobs_.size());
  for (const auto& b : blobs_) all.push_back(*b);
  return all;
}

Result<std::vector<std::string>> FileRendezvous::exchange(int rank, int size,
                                                          const std::string& blob, Moment deadline,
                                                          std::stop_token stop) {
  check_rank(rank, size);
  const auto path = [&](int r) { return fmt::format("{}/rank-{}", folder_, r); };

  // Written aside, then given its name: a reader sees all of it or nothing. link() and not
  // rename(), because link() refuses a name that is taken.
  std::string aside = fmt::format("{}/.new-XXXXXX", folder_);
  const int fd = ::mkstemp(aside.data());
  if (fd < 0) return io_error(errno, fmt::format("cannot write in '{}'", folder_));
  ::close(fd);
  {
    std::ofstream file(aside, std::ios::binary);
    file << size << '\n' << blob;
    file.flush();
    if (!file) return io_error(errno, fmt::format("cannot write '{}'", aside));
  }
  const int linked = ::link(aside.c_str(), path(rank).c_str());
  const int why = errno;
  ::unlink(aside.c_str());
  if (linked != 0) {
    if (why == EEXIST) return twice(rank);
    return io_error(why, fmt::format("cannot write '{}'", path(rank)));
  }

  std::vector<std::optional<std::string>> blobs(static_cast<size_t>(size));
  while (true) {
    std::vector<int> absent;
    for (int r = 0; r < size; ++r) {
      auto& theirs = blobs[static_cast<size_t>(r)];
      if (theirs) continue;
      std::ifstream file(path(r), std::ios::binary);
      size_t their_size = 0;
      if (!(file >> their_size)) {
        absent.push_back(r);
        continue;
      }
      if (their_size != static_cast<size_t>(size)) return other_size(r, their_size, size);
      file.get();  // the line's end
      theirs.emplace(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    if (absent.empty()) break;
    if (stop.stop_requested()) return stopped();
    if (std::chrono::steady_clock::now() >= deadline) return missing(absent, size);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<std::string> all;
  all.reserve(blobs.size());
  for (auto& b : blobs) all.push_back(*std::move(b));
  return all;
}

}  // namespace muster::comm
