// Inside the Gloo backend: one member of a group. See gloo_group.h.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/comm/call.h"
#include "muster/comm/gloo_group.h"
#include "muster/comm/gloo_wire.h"
#include "muster/comm/group.h"
#include "muster/comm/packing_choice.h"
#include "muster/comm/peer_watch.h"
#include "muster/comm/shared_plane.h"
#include "muster/comm/topology.h"

namespace muster::comm {

class GlooMember final : public Group {
 public:
  static Result<std::unique_ptr<GlooMember>> create(const GlooGroupOptions& options);
  ~GlooMember() override;

  std::string_view transport() const override;
  bool shares_memory() const override { return use_ != Use::kTcp; }
  bool can_send(int from, int to) const override { return topology_.connected(from, to); }

  // Meets the others and connects. If it fails, so has the group: see failure().
  Status form(const GlooGroupOptions& options);

 private:
  using Endpoint = GlooWire::Endpoint;

  // What goes between two members in the collectives of one tag. Every collective begins with an
  // opening: what I am doing, and as much of the data as fits; the receiver compares before it
  // believes anything. Three endpoints, because waits are counted and the kinds overlap.
  struct Link {
    Link(GlooWire& wire, size_t inline_bytes);
    Endpoint opening;
    Endpoint parts;                  // what others are to add up
    Endpoint results;                // what has been added up
    std::vector<std::byte> out, in;  // a Call and up to inline_bytes of data
    std::byte* out_data() { return out.data() + sizeof(Call); }
    std::byte* in_data() { return in.data() + sizeof(Call); }
  };
  // All that the collectives of one tag need; made when the tag is first used, kept for good.
  struct Channel {
    std::vector<std::unique_ptr<Link>> links;  // by rank; made when first used
    std::vector<std::byte> scratch;            // parts of others, until they are added
    std::unique_ptr<std::byte[]> packed;       // packed data on its way; see gloo_packed.cc
    size_t packed_bytes = 0;
    PackingChoice packing;
  };

  // Members that run an algorithm together by TCP: all of the group, or the leaders of its hosts.
  struct Team {
    std::vector<int> ranks;  // ascending
    int me = kNobody;        // this member's place among them; kNobody: it is not one of them
    int size() const { return static_cast<int>(ranks.size()); }
    // Counted round: -1 is the last.
    int rank(int place) const { return ranks[static_cast<size_t>((place + size()) % size())]; }
  };
  // What the collectives of tag 0 go through.
  enum class Use { kTcp, kSharedMemory, kHosts };

  GlooMember(const GlooGroupOptions& options, std::unique_ptr<GlooWire> wire,
             std::unique_ptr<PeerWatch> watch);

  // Where this member is in the collectives of a tag, for peers that ask.
  struct Place {
    std::atomic<uint64_t> number{0};
    std::atomic<int> waits_for{kNobody};  // kNobody: not in a collective of this tag
  };
  class Presence;
  // The sends and receives of this member that are under way, for peers that ask.
  struct Transfer {
    OpKind kind;
    int peer;
    uint32_t tag;
  };
  class TransferPresence;

  // Forming: gloo_forming.cc.
  Error forming_error() const;
  PeerWatch::Handlers handlers();
  Status listen_for_peers();
  bool connect_watch(Moment deadline);
  bool connect_wire(Moment deadline);
  int unconnected() const;
  int unreached_for_long() const;
  void find_hosts(const std::vector<std::string>& ids);
  bool agree_on_memory(bool wanted, Moment deadline);

  // Failing: gloo_member.cc.
  void shut(const GroupFailure* failure) override;
  Channel& channel(uint32_t tag);
  Link& link(Channel& channel, int rank);
  std::string answer(std::string_view question) const;
  // What this member waits for, in whatever it is doing.
  int waits_for_anything() const;
  // The member that holds everyone up while we wait for `peer`.
  struct Verdict {
    int origin = kNobody;
    bool silent = false;        // when asked
    bool waits_for_us = false;  // while we wait for it
    std::string how;            // completes "rank 3 (name) ..."
  };
  Verdict find_origin(int peer, const Operation& op);
  // The ends of an operation that cannot go on; all return false.
  bool late(int peer, const Operation& op);
  bool left(int peer, const Operation& op);
  bool broken(int peer, const Operation& op, const std::string& error);
  bool disagree(int peer, const Operation& op, const Call& theirs);

  // Posting and waiting, with blame: gloo_collectives.cc.
  bool post_send(Endpoint& end, int peer, uint64_t id, const void* data, size_t bytes,
                 const Operation& op);
  bool post_recv(Endpoint& end, int peer, uint64_t id, void* data, size_t bytes,
                 const Operation& op);
  bool ended(Endpoint::Outcome outcome, const Endpoint& end, int peer, const Operation& op);
  bool await_send(Endpoint& end, int peer, const Operation& op);
  bool await_recv(Endpoint& end, int peer, const Operation& op);
  void waits_for(int peer, const Operation& op);
  bool expect_opening(Link& link, int peer, const Operation& op);
  bool send_opening(Link& link, int peer, const void* data, size_t bytes, const Operation& op);
  bool await_opening(Link& link, int peer, const Operation& op);

  bool shared(const Operation& op) const { return use_ == Use::kSharedMemory && op.tag == 0; }
  std::atomic<int>& waiting_place(const Operation& op) { return places_[op.tag].waits_for; }
  bool run_shared(const Operation& op, std::byte* data);
  bool plane_end(const SharedPlane::End& end, const Operation& op);

  // The algorithms.
  bool run_allreduce(const Operation& op, std::byte* data) override;
  bool run_reduce_scatter(const Operation& op, std::byte* data) override;
  bool run_allgather(const Operation& op, std::byte* data) override;
  bool run_broadcast(const Operation& op, std::byte* data) override;
  bool run_barrier(const Operation& op) override;
  bool allgather_doubling(const Operation& op, std::byte* data);
  bool run_send(const Operation& op, const std::byte* data) override;
  bool run_recv(const Operation& op, std::byte* data) override;
  bool meet(const Operation& op);
  bool barrier_of(const Team& team, const Operation& op);
  bool allreduce_by_hosts(const Operation& op, std::byte* data);
  bool allreduce_of(const Team& team, const Operation& op, std::byte* data);
  bool allreduce_direct(const Team& team, const Operation& op, std::byte* data);
  bool allreduce_tree(const Team& team, const Operation& op, std::byte* data);
  bool allreduce_halving(const Team& team, const Operation& op, std::byte* data);
  struct Halving;
  struct PartsReduction;
  struct PackedReduction;
  bool exchange_parts(const Team& team, const Operation& op, std::byte* data, bool distribute);
  bool exchange_packed(const Team& team, const Operation& op, std::byte* data);

  const size_t inline_bytes_;  // the same on all members, as it depends on the size only
  const Allreduce algorithm_;
  const std::unique_ptr<GlooWire> wire_;
  // Decided while forming.
  Team all_;
  Team leaders_;                         // the lowest rank of each host
  Topology topology_;                    // of the data connections
  std::vector<int> host_members_;        // of this member's host
  std::unique_ptr<SharedPlane> plane_;   // between them; null if this member is alone
  std::atomic<bool> plane_made_{false};  // plane_ may be used from other threads
  Use use_ = Use::kTcp;
  std::mutex channels_mutex_;
  std::array<std::unique_ptr<Channel>, kCollectiveTags> channels_;  // guarded by channels_mutex_
  std::array<Place, kCollectiveTags> places_;
  mutable std::mutex transfers_mutex_;
  std::list<Transfer> transfers_;  // guarded by transfers_mutex_; the oldest first
  std::atomic<bool> forming_{true};
  std::atomic<Moment> connecting_since_{Moment::max()};
  std::vector<std::atomic<bool>> wired_;  // by rank: the data connection stands
  // Last, so that its thread is gone before the rest: it calls fail().
  std::unique_ptr<PeerWatch> watch_;
};

}  // namespace muster::comm
