// Which members of a group have a data connection with each other: a pure function of the group's
// size and hosts, so all members know it without asking.
//
// Up to kAllPairs members all pairs are connected: every algorithm is direct. With n members that
// is n (n - 1) / 2 connections, which take longer to make than anything else in forming a group
// (each end of a Gloo pair listens on a port of its own), and are far more than the algorithms for
// many members use. So in a larger group a member is connected to those at a distance of a power of
// two, counted round (barrier, trees, allgather), and to its partners of recursive halving: 11
// instead of 63 among 64 members, about 25 instead of 999 among 1,000. The same among the leaders
// of the hosts, one member of each, which reduce between hosts.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace muster::comm {

inline constexpr int kAllPairs = 16;

// Recursive halving works on a power of two of places. If there are more members, the odd ones of
// the first pairs (0 and 1, 2 and 3, ...) give their data to their neighbours and are left out.
struct HalvingPlaces {
  explicit HalvingPlaces(int size);
  // The member that has this place, among `power`.
  int member(int place) const { return place < extra ? 2 * place : place + extra; }
  // Its place; not for the ones that are left out.
  int place(int member) const { return member < 2 * extra ? member / 2 : member - extra; }
  bool paired(int member) const { return member < 2 * extra; }
  int power;
  int extra;  // members that are left out
};

class Topology {
 public:
  Topology() = default;
  // `leaders`: ranks that run algorithms among themselves.
  Topology(int size, const std::vector<int>& leaders);

  bool connected(int a, int b) const;
  // Ascending.
  const std::vector<int>& peers(int rank) const { return peers_[static_cast<size_t>(rank)]; }

 private:
  void connect_team(const std::vector<int>& ranks);
  void connect(int a, int b);

  std::vector<std::vector<int>> peers_;  // by rank
};

}  // namespace muster::comm
