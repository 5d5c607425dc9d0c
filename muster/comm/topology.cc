#include "muster/comm/topology.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace muster::comm {

HalvingPlaces::HalvingPlaces(int size)
    : power(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), extra(size - power) {}

Topology::Topology(int size, const std::vector<int>& leaders) : peers_(static_cast<size_t>(size)) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  connect_team(all);
  connect_team(leaders);
  for (auto& peers : peers_) {
    std::ranges::sort(peers);
    peers.erase(std::ranges::unique(peers).begin(), peers.end());
  }
}

bool Topology::connected(int a, int b) const { return std::ranges::binary_search(peers(a), b); }

void Topology::connect_team(const std::vector<int>& ranks) {
  const int size = static_cast<int>(ranks.size());
  const auto link = [&](int a, int b) {
    connect(ranks[static_cast<size_t>(a)], ranks[static_cast<size_t>(b)]);
  };
  if (size <= kAllPairs) {
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) link(a, b);
    }
    return;
  }
  for (int a = 0; a < size; ++a) {
    for (int distance = 1; distance < size; distance <<= 1) link(a, (a + distance) % size);
  }
  const HalvingPlaces places(size);
  for (int i = 0; i < places.extra; ++i) link(2 * i, 2 * i + 1);
  for (int place = 0; place < places.power; ++place) {
    for (int bit = 1; bit < places.power; bit <<= 1) {
      link(places.member(place), places.member(place ^ bit));
    }
  }
}

void Topology::connect(int a, int b) {
  peers_[static_cast<size_t>(a)].push_back(b);
  peers_[static_cast<size_t>(b)].push_back(a);
}

}  // namespace muster::comm
