// How the members of a group that is being made find each other.
//
// Each member brings one blob (its addresses) and gets everybody's, in order of rank, in one round
// trip. The coordinator of a job is one such place to meet (one per roster); two simple ones are
// here: MemoryRendezvous for members that are threads of one process, FileRendezvous for processes
// that share a folder.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"

namespace muster::comm {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Returns the blobs of all members once all have come: `size` of them, the caller's own included.
  // An error: the deadline has passed (the sentence names the ranks that did not come), a stop was
  // requested, two members claimed one rank, or they disagree about the size. Blobs may hold any
  // bytes. One call per member and Rendezvous; safe for concurrent use by the members.
  virtual Result<std::vector<std::string>> exchange(int rank, int size, const std::string& blob,
                                                    Moment deadline, std::stop_token stop) = 0;
};

// For threads of one process, which share the object.
class MemoryRendezvous final : public Rendezvous {
 public:
  Result<std::vector<std::string>> exchange(int rank, int size, const std::string& blob,
                                            Moment deadline, std::stop_token stop) override;

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::optional<std::string>> blobs_;  // guarded by mutex_
};

// For processes that share a folder, which must be new for each group: each member writes the file
// rank-R and looks for the others every millisecond. For tests, benchmarks and experiments; a job
// meets at its coordinator.
class FileRendezvous final : public Rendezvous {
 public:
  explicit FileRendezvous(std::string folder) : folder_(std::move(folder)) {}
  Result<std::vector<std::string>> exchange(int rank, int size, const std::string& blob,
                                            Moment deadline, std::stop_token stop) override;

 private:
  const std::string folder_;
};

}  // namespace muster::comm
