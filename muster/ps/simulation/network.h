// Connections between processes of a simulation, on the links of a World. Messages between two ends
// keep their order. A cut delays them; a connection that breaks loses those under way.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "muster/base/clock.h"
#include "muster/roster/simulation/world.h"

namespace muster::ps::simulation {

class Network {
 public:
  explicit Network(roster::simulation::World& world) : world_(world) {}

  void deliver(int from, int to, std::function<void()> what);
  void break_connection(int a, int b);

 private:
  struct Link {
    Moment last;  // when the last message arrives
    std::deque<std::function<void()>> under_way;
  };
  void arrive(int from, int to);

  roster::simulation::World& world_;
  std::map<std::pair<int, int>, Link> links_;
};

}  // namespace muster::ps::simulation
