// The groups that the workers of a simulated training form, in place of roster and comm: who is in,
// and operations in which all members take part.
//
// Members of a new group agree on where to go on by the product's own rule (roster/agree.h), and a
// worker that was left out of a group has lost its state (Membership: rows have gone on). If nobody
// has one, or an audit has made it invalid, all go back to the newest checkpoint, or begin anew.
//
// Whoever is lost or suspended is missed after a while, and the others form a new group; so do all
// when one more has come, or has come back. A worker hears of it after a while, and until it looks
// it goes on as if nothing had happened. One that was suspended does not know that the others have
// given it up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "muster/ps/simulation/checkpoints.h"
#include "muster/roster/agree.h"

namespace muster::ps::simulation {

class Cluster;
class Worker;
struct ClientProcess;

struct Group {
  uint64_t number = 0;       // from 1; 0: none
  std::vector<int> members;  // places of clients, by rank
  // By member: since which group it has been one without a break.
  std::map<int, uint64_t> since;
};

// What a member of a new group does first.
struct Agreed {
  roster::Action action = roster::Action::kGoOn;
  uint64_t position = 0;
  uint64_t era = 0;
  std::shared_ptr<const Checkpoint> checkpoint;  // to be restored; null: the beginning
};

class Groups {
 public:
  explicit Groups(Cluster& cluster);

  const Group& newest() const { return newest_; }
  // A member cannot go on in its group.
  void report(uint64_t group);
  // What was told to this client may be lost.
  void reconnected(int place);

  // The first operation of a group: from where it goes on. `era`: of the state, if there is one.
  void agree(const Group& group, int place, const roster::StateReport& report, uint64_t era);
  // A member has come to another operation. When all have, each hears of the largest value.
  void meet(const Group& group, uint64_t operation, int place, uint64_t value);

  Checkpoints& checkpoints() { return checkpoints_; }
  // Workers find that what they computed since a checkpoint is wrong.
  void audit();

  // Whether there is another one who has the state of the last group that agreed on one, or nobody
  // has a state. Else all go back to a checkpoint.
  bool can_lose(const ClientProcess& client) const;
  // All are members of the newest group and have come to the end together.
  bool all_stopped() const;
  // The most that a worker knows, and its era.
  uint64_t position() const;
  uint64_t era() const;

 private:
  struct Meeting {
    std::set<int> there;
    uint64_t most = 0;
    std::map<int, std::pair<roster::StateReport, uint64_t>> reports;  // by place, with eras
  };
  void agree_all(const Group& group, Meeting& meeting);
  const Worker* ahead() const;
  void watch();
  void tell(int place);
  bool takes_part(const ClientProcess& client) const;

  Cluster& cluster_;
  Group newest_;
  bool failed_ = false;                                        // the newest one
  std::map<std::pair<uint64_t, uint64_t>, Meeting> meetings_;  // by group and operation
  uint64_t agreed_ = 0;                                        // the last one with a position
  Checkpoints checkpoints_;
};

}  // namespace muster::ps::simulation
