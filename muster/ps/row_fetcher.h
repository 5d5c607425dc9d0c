// Threads that read rows from disk ahead of their use, so that the server's own thread does not.
//
// The owner asks (request) and takes what has come (take), both from one thread; its own threads
// only look up keys in ColdRows. What is asked for first need not come first.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/ps/cold_rows.h"

namespace muster::ps {

// What one request has found.
struct FetchedRows {
  uint64_t number = 0;
  ColdPart part;
  std::vector<uint64_t> keys;
  std::vector<size_t> found;  // places in `keys`, ascending
  std::vector<std::string> rows;
  Status status;
};

class RowFetcher {
 public:
  // `rows` must outlive it. `wake` is called by another thread when something has come.
  RowFetcher(ColdRows& rows, std::function<void()> wake);
  ~RowFetcher();
  RowFetcher(const RowFetcher&) = delete;
  RowFetcher& operator=(const RowFetcher&) = delete;

  // Its number: 1, 2, 3, ...
  uint64_t request(ColdPart part, std::span<const uint64_t> keys);
  // What has come since the last time.
  std::vector<FetchedRows> take();
  // This and all before it were taken.
  bool taken(uint64_t number) const { return under_way_.empty() || number < *under_way_.begin(); }

  // Keys of one request, at most. More are better asked for in several, which are read at the same
  // time.
  static constexpr size_t kMostKeys = 256;

 private:
  void serve();

  ColdRows& rows_;
  const std::function<void()> wake_;
  // Of the owner.
  uint64_t last_ = 0;
  std::set<uint64_t> under_way_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;                // guarded by mutex_, as are these
  std::deque<FetchedRows> requested_;  // without what is found
  std::vector<FetchedRows> done_;
  std::vector<Thread> threads_;
};

}  // namespace muster::ps
