#include "muster/train/membership/transfer.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "muster/base/fault_point.h"

namespace muster::train {

namespace {

constexpr uint64_t kPart = 4 << 20;

// Calls body(part of `state`, its index) for each part, in order.
template <typename Body>
Status each_part(std::span<std::byte> state, const Vitals& vitals, Body body) {
  for (uint64_t done = 0; done < state.size(); done += kPart) {
    const auto part = state.subspan(done, std::min<uint64_t>(kPart, state.size() - done));
    MUSTER_RETURN_IF_ERROR(body(part, done / kPart));
    vitals.note_progress();
    fault_point(FaultPoint::kTransfer);
  }
  return {};
}

Result<uint64_t> by_rounds(std::span<std::byte> state, comm::Group& group,
                           std::span<const Receiver> receivers, const Vitals& vitals,
                           const comm::OpOptions& options) {
  uint64_t received = 0;
  for (const auto& round : transfer_rounds(state.size(), receivers)) {
    for (const Handover& one : round) {
      if (one.source != group.rank() && one.receiver != group.rank()) continue;
      const bool gives = one.source == group.rank();
      MUSTER_RETURN_IF_ERROR(each_part(state.subspan(one.offset, one.bytes), vitals,
                                       [&](std::span<std::byte> part, uint64_t) {
                                         return gives ? group.send(part, one.receiver, options)
                                                      : group.recv(part, one.source, options);
                                       }));
      if (!gives) received += one.bytes;
    }
  }
  return received;
}

Result<uint64_t> by_broadcast(std::span<std::byte> state, comm::Group& group,
                              std::span<const int> sources, bool receives, const Vitals& vitals,
                              const comm::OpOptions& options) {
  // A broadcast also reaches the sources that are not its root. What they have is as good, and must
  // stay as it is if the group fails in the middle.
  std::vector<std::byte> unused;
  if (!receives && sources.size() > 1) unused.resize(std::min<uint64_t>(kPart, state.size()));
  MUSTER_RETURN_IF_ERROR(each_part(state, vitals, [&](std::span<std::byte> part, uint64_t index) {
    const int root = sources[index % sources.size()];
    const bool ours = receives || root == group.rank();
    return group.broadcast(ours ? part : std::span(unused).first(part.size()), root, options);
  }));
  return receives ? state.size() : 0;
}

}  // namespace

std::vector<std::vector<Handover>> transfer_rounds(uint64_t bytes,
                                                   std::span<const Receiver> receivers) {
  // What each receiver still has to get, in the order in which it would like to.
  std::vector<std::vector<roster::Stripe>> wanted;
  for (size_t i = 0; i < receivers.size(); ++i) {
    // Each begins with another source, and then goes round.
    std::vector<int> order = receivers[i].sources;
    const auto first = static_cast<std::ptrdiff_t>(i % order.size());
    std::ranges::rotate(order, order.begin() + first);
    wanted.push_back(roster::stripes(bytes, order, 0));
  }
  std::vector<std::vector<Handover>> rounds;
  while (true) {
    std::vector<Handover> round;
    std::set<int> busy;
    for (size_t i = 0; i < receivers.size(); ++i) {
      const auto stripe = std::ranges::find_if(
          wanted[i], [&](const roster::Stripe& one) { return !busy.contains(one.source); });
      if (stripe == wanted[i].end()) continue;
      busy.insert(stripe->source);
      round.push_back({stripe->source, receivers[i].rank, stripe->offset, stripe->bytes});
      wanted[i].erase(stripe);
    }
    if (round.empty()) return rounds;
    rounds.push_back(std::move(round));
  }
}

Result<uint64_t> transfer_state(std::span<std::byte> state, comm::Group& group,
                                const roster::Agreement& agreement, const Vitals& vitals,
                                const comm::OpOptions& options) {
  std::vector<Receiver> receivers;
  bool near = true;  // each receiver has a source that can send to it
  bool receives = false;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (agreement.actions[static_cast<size_t>(rank)] != roster::Action::kReceive) continue;
    Receiver receiver{.rank = rank, .sources = {}};
    std::ranges::copy_if(agreement.sources, std::back_inserter(receiver.sources),
                         [&](int source) { return group.can_send(source, rank); });
    near &= !receiver.sources.empty();
    receives |= rank == group.rank();
    receivers.push_back(std::move(receiver));
  }
  if (near && receivers.size() <= agreement.sources.size()) {
    return by_rounds(state, group, receivers, vitals, options);
  }
  return by_broadcast(state, group, agreement.sources, receives, vitals, options);
}

}  // namespace muster::train
