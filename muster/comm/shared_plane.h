// Collectives between the members on one host, through shared memory.
//
// Sending to oneself over TCP costs two copies in the kernel, system calls and wake-ups, all of
// which take processor time from the lanes when no core is idle. Here the data is cut into blocks,
// and each goes through three stages:
//   staged    everyone puts the parts that others are to add up where they can see them
//   reduced   everyone adds up its own part, in place, and shows the result
//   copied    everyone takes the results of the others
// (gathering and broadcasting have nothing to add up: the result is what one brings).
// Each member counts what it has done; the others wait for its counters. Stages of neighbouring
// blocks overlap, and a member may run ahead by kAhead blocks, so that none has to wait for another
// to be scheduled more often than needed. A member writes only to its own segment and its own data.
//
// Members are as in a Group of one tag: one call at a time, the same calls in the same order. No
// threads of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/comm/call.h"
#include "muster/comm/group.h"
#include "muster/comm/shared_segment.h"

namespace muster::comm {

class SharedPlane {
 public:
  enum class Outcome { kDone, kLate, kClosed, kLeft, kDisagree };
  // How a call ended, and if not well, because of whom.
  struct End {
    Outcome outcome = Outcome::kDone;
    int peer = kNobody;
    Call theirs = {};  // kDisagree
  };

  // Between `members` (ranks of a group, ascending), of which `rank` is one. None if this system
  // does not give shared memory.
  static std::unique_ptr<SharedPlane> create(int rank, std::vector<int> members);

  // For the peers.
  std::string address() const;
  // False: that peer's memory cannot be opened; then the plane is of no use.
  bool open(int rank, std::string_view address);

  // Any collective. The root of a broadcast and the parts of data are by place among the members,
  // not by rank; `waits_for` is kept at the rank that the call waits for.
  End run(const Operation& op, std::byte* data, std::atomic<int>& waits_for);
  // An allreduce whose result only the first of the members gets; the data of the others is
  // undefined afterwards.
  End reduce_to_first(const Operation& op, std::byte* data, std::atomic<int>& waits_for);
  // Return when all members have called it for the same operation; move no data. meet() is for the
  // beginning of operations that nobody finishes before all members of the group have begun them.
  End meet(const Operation& op, std::atomic<int>& waits_for);
  End meet_again(const Operation& op, std::atomic<int>& waits_for);

  // A member of the group, here or elsewhere, has left. reduce_to_first() and meet() then end with
  // kLeft if they still wait. From any thread.
  void note_left(int rank);
  // Ends the call that is under way and all later ones. From any thread.
  void close();
  // Tells the others not to wait for this member any more.
  void leave();

 private:
  class Run;
  SharedPlane(int place, std::vector<int> members, std::unique_ptr<SharedSegment> own);
  static size_t unit_bytes(int size);
  static size_t data_bytes(int size);
  SharedSegment& segment(int place) { return *segments_[static_cast<size_t>(place)]; }

  const std::vector<int> members_;
  const int rank_;  // here and below: the place among the members
  const int size_;
  std::vector<std::unique_ptr<SharedSegment>> segments_;
  std::atomic<bool> closed_{false};
  std::atomic<int> left_{kNobody};  // the first of which note_left() told
  uint32_t blocks_ = 0;             // of all calls so far, the same on all members
  uint32_t calls_ = 0;
};

}  // namespace muster::comm
