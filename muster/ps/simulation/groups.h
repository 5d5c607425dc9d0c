// The groups that the workers of a simulated training form, in place of roster and comm: who is in,
// and operations in which all members take part.
//
// Whoever is lost or suspended is missed after a while, and the others form a new group; so do all
// when one more has come, or has come back. A worker hears of it after a while, and until it looks
// it goes on as if nothing had happened. One that was suspended does not know that the others have
// given it up.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace muster::ps::simulation {

class Cluster;
struct ClientProcess;

struct Group {
  uint64_t number = 0;       // from 1; 0: none
  std::vector<int> members;  // places of clients, by rank
};

class Groups {
 public:
  explicit Groups(Cluster& cluster);

  const Group& newest() const { return newest_; }
  // A member cannot go on in its group.
  void report(uint64_t group);
  // What was told to this client may be lost.
  void reconnected(int place);

  // A member has come to an operation of its group. When all have, each hears of the largest value.
  // The first operation of a group is to agree on the position from which it goes on
  // (Worker::position).
  void meet(const Group& group, uint64_t operation, int place, uint64_t value);

  // Whether there is another one who knows where the last group that agreed on it is. If there were
  // not, workers would have to go back to a checkpoint, which is not simulated.
  bool can_lose(const ClientProcess& client) const;
  // All are members of the newest group and have come to the end together.
  bool all_stopped() const;
  // The most that a worker knows.
  uint64_t position() const;

 private:
  struct Meeting {
    std::set<int> there;
    uint64_t most = 0;
  };
  void watch();
  void tell(int place);
  bool takes_part(const ClientProcess& client) const;

  Cluster& cluster_;
  Group newest_;
  bool failed_ = false;                                        // the newest one
  std::map<std::pair<uint64_t, uint64_t>, Meeting> meetings_;  // by group and operation
  uint64_t agreed_ = 0;                                        // the last one with a position
};

}  // namespace muster::ps::simulation
