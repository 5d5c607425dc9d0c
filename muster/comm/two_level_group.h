// A group over several sites, in which data crosses from one site to another once for each site,
// not once for each member.
//
//   all        everybody. Ranks and names of the whole are those of this group
//   site       those of one site; its rank 0 is the leader of the site
//   leaders    the leaders of all sites
//
// A sum is formed within each site, then among the leaders, then passed on within each site. The
// same with maxima, broadcasts and allgathers. send and recv go straight to the peer. Integer sums
// and maxima have the same bits as those of `all`.
//
// When one of the three has failed, so has the whole, and the others are ended at once, with the
// same failure. Messages may have ranks of the group in which it began; origin and suspect have
// those of the whole. At a deadline a member that waits for its leader cannot know for whom the
// leader waits. Members that disagree are told, but of two broadcasts from different members of one
// site only those of that site notice. Threads: those of the three, none of its own.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/comm/group.h"
#include "muster/comm/rendezvous.h"

namespace muster::comm {

// Groups of processes. Nobody else may use them for collectives; `all` is not used at all, except
// for send and recv, if there are several sites.
struct TwoLevels {
  std::shared_ptr<Group> all;
  std::shared_ptr<Group> site;     // null: this member is alone at its site, or there is one site
  std::shared_ptr<Group> leaders;  // null: it does not lead, or there is one site
  // By site, in the order of the leaders' ranks: the ranks in `all`, in the order of the site's
  // own. Each member is at one site.
  std::vector<std::vector<int>> sites;
};

std::unique_ptr<Group> make_two_level_group(TwoLevels levels);

// Where members of a group meet to form smaller ones: the addresses are exchanged through the group
// that they are in. Collective: a member of `all` that is to be in no new group calls attend()
// instead. Several new groups, without a common member, can meet in one exchange.
class GroupRendezvous final : public Rendezvous {
 public:
  // `members`: ranks in `all`, in the order of their ranks in the new group. `timeout`: for all to
  // come; the deadline of exchange() does not count.
  GroupRendezvous(Group& all, std::vector<int> members, Duration timeout)
      : all_(all), members_(std::move(members)), timeout_(timeout) {}
  // Stopped by all.abort(), not by `stop`.
  Result<std::vector<std::string>> exchange(int rank, int size, const std::string& blob,
                                            Moment deadline, std::stop_token stop) override;
  static Status attend(Group& all, Duration timeout);

 private:
  Group& all_;
  const std::vector<int> members_;
  const Duration timeout_;
};

}  // namespace muster::comm
