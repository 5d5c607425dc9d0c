// A group of virtual workers: what comm's Group does, as far as the protocol can see it.
//
// Members arrive, the group is formed when all have, and then they go through the same sequence of
// operations. An operation is complete at each member at a time of its own, and only after all have
// entered it. If somebody goes in between, some may still complete it and others not: that is the
// whole difficulty of the protocol, so it is left to chance for each member.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/roster/simulation/witness.h"
#include "muster/roster/simulation/world.h"
#include "muster/roster/types.h"

namespace muster::roster::simulation {

struct VirtualCommit {
  Position of;            // the position it leads on from
  bool overflow = false;  // the step must be done once more
  uint8_t newer = 0;      // follow.h: commit_byte
};

// What a member brings to an operation. Which fields count depends on the operation.
struct Offering {
  StateReport report;                    // agreement
  std::optional<VirtualCommit> message;  // rolling forward, commit
  uint64_t state = 0;                    // transfer, by those who have it
  Position position;                     // reduction
  uint64_t sum = 0;                      // reduction
  const std::vector<int32_t>* lanes = nullptr;
};

// The result of an operation, the same for all.
struct Operation {
  int entered = 0;
  std::vector<bool> has_entered;
  std::vector<bool> completed;
  std::vector<StateReport> reports;
  VirtualCommit message;
  uint64_t state = 0;
  uint64_t sum = 0;
  std::vector<uint8_t> lanes;
};

class GroupMember {
 public:
  virtual ~GroupMember() = default;
  virtual void on_formed() = 0;
  virtual void on_complete(size_t operation) = 0;
  // `suspect`: the rank that it could not connect to or that was silent, or -1.
  virtual void on_failed(int suspect, const std::string& why) = 0;
  // Whether its process runs: then it answers its peers, whatever its own thread does.
  virtual bool answers() const = 0;
};

class Group : public std::enable_shared_from_this<Group> {
 public:
  Group(World& world, Witness& witness, std::shared_ptr<const Roster> roster,
        std::vector<int> slots, int32_t lanes, Duration silence);

  const Roster& roster() const { return *roster_; }
  int size() const { return static_cast<int>(slots_.size()); }
  const Operation& operation(size_t index) const { return operations_.at(index); }

  // The member comes, and wants to hear of it within `deadline` whether the group stands.
  void arrive(int rank, GroupMember* member, Duration deadline);
  // The member enters its next operation, number `index`. If it is not complete after a while the
  // member asks its peers, and fails if one is silent.
  void enter(int rank, size_t index, const Offering& offering, Duration takes);
  // It goes. By plan: everybody goes after the operation it has just completed. Silently: without
  // its machine being able to close the connections.
  enum class Going : uint8_t { kByPlan, kAbruptly, kSilently };
  void leave(int rank, Going going);
  // It stands still for a while, and what it should pass on with it.
  void freeze(int rank, Moment until);

 private:
  void complete(int rank, size_t index);
  void watch(int rank);
  int suspect_of(int rank) const;
  // Only silence makes a suspect: a peer that closes its connection has a reason of its own.
  enum class Suspect : uint8_t { kNone, kSilent };
  void tell_failed(int rank, const char* why, Duration delay, Suspect suspect);
  Moment links_whole() const;

  World& world_;
  Witness& witness_;
  std::shared_ptr<const Roster> roster_;
  std::vector<int> slots_;             // by rank
  std::vector<GroupMember*> members_;  // by rank; null: not here yet, or gone
  std::vector<bool> gone_;
  std::vector<Moment> frozen_;  // by rank: not before this
  std::vector<bool> silent_;    // by rank: gone, and nothing closed its connections
  std::vector<Moment> due_;     // by rank: when it asks its peers; max: it is in no operation
  std::vector<bool> watched_;   // by rank: somebody looks at due_ when it comes
  int arrived_ = 0;
  bool formed_ = false;
  int32_t lanes_;
  Duration silence_;
  std::vector<Operation> operations_;
};

}  // namespace muster::roster::simulation
