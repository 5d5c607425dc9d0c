// A group whose members are threads of one process.
//
// Tests use it, and jobs with one worker. Members read each other's memory directly, so a group of
// one costs an atomic or two per call, and larger ones one pass over the data.
//
//   auto hub = LocalHub::create({"a", "b"});
//   // on each member's thread:
//   MUSTER_TRY(std::unique_ptr<Group> group, hub->join(rank));
//
// No threads of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/comm/group.h"

namespace muster::comm {

// Where the members of one group meet. Safe for concurrent use; kept alive by the members.
class LocalHub : public std::enable_shared_from_this<LocalHub> {
 public:
  // One member for each name.
  static std::shared_ptr<LocalHub> create(std::vector<std::string> names);
  ~LocalHub();

  // The member `rank`. Each may be taken once: kInternal otherwise. Does not wait for the others;
  // the first operation does.
  Result<std::unique_ptr<Group>> join(int rank);

 private:
  class Member;
  struct State;
  explicit LocalHub(std::vector<std::string> names);
  const std::unique_ptr<State> state_;
};

// A group of one.
std::unique_ptr<Group> solo_group(std::string name);

}  // namespace muster::comm
