// A network for the workers of one job, in which any two of them can be cut off from each other.
//
// This process moves to a network namespace of its own, with a bridge. Each slot gets a namespace
// behind that bridge, with an address of its own. The workers take each other for different
// machines: in their mount namespaces the kernel has another boot id, so that they do not share
// memory, which would bypass a cut.
//
// Nothing is left behind, however this process ends: the namespaces have no names, and live as long
// as a process is in them or this process has them open.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"

#include "tools/muster-launch/verify/children.h"

namespace muster::cli {

class Network {
 public:
  // Call it while this process has one thread. `folder`: exists; has a few small files as long as
  // the network is there. `worker`: the program that slots are started with. kUsage, with what is
  // missing, if this system has no network namespaces for us.
  static Result<Network> make(int slots, const std::string& folder, const std::string& worker,
                              Children& children);
  Network(Network&& other) noexcept;
  Network& operator=(Network&&) = delete;
  ~Network();

  // Where this process, a coordinator and workers that belong to no slot are reached.
  static std::string address();
  // A program that starts the worker in the namespace of its --id ("0", "1", ...), with the --host
  // of that; with another id it only starts the worker.
  const std::string& worker() const { return wrapper_; }

  // From now on, or no more: no packet passes between these two slots, in either direction.
  Status cut(const std::string& a, const std::string& b);
  Status heal(const std::string& a, const std::string& b);

 private:
  struct Slot {
    int net = -1;  // file descriptors
    int mount = -1;
    std::string address;
  };
  explicit Network(Children& children) : children_(&children) {}
  Status add_slot(const std::string& folder, int home_net, int home_mount);
  Status write_wrapper(const std::string& folder, const std::string& worker);
  Status route(const char* action, const std::string& from, const std::string& to);
  Status run(const std::string& line);

  Children* children_;
  std::vector<Slot> slots_;
  std::string wrapper_;
  std::vector<std::string> files_;  // that we wrote
};

// The wrapper's text. `namespaces`: for each slot the words for nsenter, and its address. Pure.
std::string wrapper_script(const std::string& worker,
                           const std::vector<std::pair<std::string, std::string>>& namespaces);

}  // namespace muster::cli
