#include "muster/ps/simulation/network.h"

#include <algorithm>

namespace muster::ps::simulation {

void Network::deliver(int from, int to, std::function<void()> what) {
  auto& link = links_[{from, to}];
  link.under_way.push_back(std::move(what));
  link.last = std::max(world_.now() + world_.latency(from, to), link.last);
  world_.at(link.last, [this, from, to] { arrive(from, to); });
}

// One message for each call, and none while there is no way.
void Network::arrive(int from, int to) {
  if (world_.is_cut(from, to)) {
    return world_.at(world_.cut_until(from, to), [this, from, to] { arrive(from, to); });
  }
  auto& link = links_[{from, to}];
  if (link.under_way.empty()) return;  // the connection broke
  const auto what = std::move(link.under_way.front());
  link.under_way.pop_front();
  what();
}

void Network::break_connection(int a, int b) {
  world_.trace("the connection between {} and {} breaks", a, b);
  links_[{a, b}].under_way.clear();
  links_[{b, a}].under_way.clear();
}

}  // namespace muster::ps::simulation
