#include "muster/comm/two_level_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "muster/base/check.h"

namespace muster::comm {
namespace {

std::vector<std::string> names_of(const Group& group) {
  std::vector<std::string> names;
  for (int r = 0; r < group.size(); ++r) names.push_back(group.name(r));
  return names;
}

Duration time_left(Moment deadline) {
  return std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
}

Status allreduce(Group& group, const Operation& op, std::byte* data, const OpOptions& options) {
  switch (op.reduction) {
    case Reduction::kSumInt32:
      return group.allreduce_sum(std::span(reinterpret_cast<int32_t*>(data), op.count), options);
    case Reduction::kSumFloat:
      return group.allreduce_sum(std::span(reinterpret_cast<float*>(data), op.count), options);
    case Reduction::kMaxUint8:
      return group.allreduce_max(std::span(reinterpret_cast<uint8_t*>(data), op.count), options);
  }
  MUSTER_CHECK(false, "an unknown reduction");
  return {};
}

class TwoLevelGroup final : public Group {
 public:
  explicit TwoLevelGroup(TwoLevels levels)
      : Group(levels.all->rank(), names_of(*levels.all)), levels_(std::move(levels)) {
    place_.resize(static_cast<size_t>(size()), Place{.site = size_t{0}, .rank = kNobody});
    for (size_t s = 0; s < levels_.sites.size(); ++s) {
      for (size_t r = 0; r < levels_.sites[s].size(); ++r) {
        place_[static_cast<size_t>(levels_.sites[s][r])] = {.site = s, .rank = static_cast<int>(r)};
      }
    }
    MUSTER_CHECK(std::ranges::none_of(place_, [](const Place& p) { return p.rank == kNobody; }),
                 "each member is at a site");
    const size_t here = members_here().size();
    MUSTER_CHECK(levels_.site == nullptr ? here == 1 || one_site()
                                         : levels_.site->size() == static_cast<int>(here) &&
                                               levels_.site->rank() == place().rank,
                 "the group of a site has its members, in their order");
    MUSTER_CHECK(levels_.leaders == nullptr
                     ? one_site() || place().rank > 0
                     : levels_.leaders->size() == static_cast<int>(levels_.sites.size()) &&
                           levels_.leaders->rank() == static_cast<int>(place().site) &&
                           place().rank == 0,
                 "the group of leaders has one of each site");
    for_each_group([&](Group& group) {
      group.when_failed([this, &group] { fail_unless_failing(failure_of(group)); });
    });
  }
  ~TwoLevelGroup() override {
    for_each_group([](Group& group) { group.when_failed(nullptr); });
  }

  std::string_view transport() const override { return levels_.all->transport(); }
  bool shares_memory() const override { return levels_.all->shares_memory(); }
  bool can_send(int from, int to) const override { return levels_.all->can_send(from, to); }

 private:
  struct Place {
    size_t site;
    int rank;  // within it
  };
  const Place& place() const { return place_[static_cast<size_t>(rank())]; }
  const std::vector<int>& members_here() const { return levels_.sites[place().site]; }

  bool one_site() const { return levels_.sites.size() == 1; }
  template <typename Visit>
  void for_each_group(Visit visit) const {
    for (const auto& group : {levels_.all, levels_.site, levels_.leaders}) {
      if (group != nullptr) visit(*group);
    }
  }

  // With ranks of the whole; `group` has failed.
  GroupFailure failure_of(const Group& group) const {
    auto failure = *group.failure();
    failure.origin = rank_in_all(group, failure.origin);
    failure.suspect = rank_in_all(group, failure.suspect);
    return failure;
  }
  int rank_in_all(const Group& group, int rank) const {
    if (rank == kNobody || &group == levels_.all.get()) return rank;
    if (&group == levels_.site.get()) return members_here()[static_cast<size_t>(rank)];
    return levels_.sites[static_cast<size_t>(rank)][0];
  }
  // kNobody: not a member of that group.
  int rank_in(const Group& group, int rank) const {
    if (rank == kNobody || &group == levels_.all.get()) return rank;
    const Place& where = place_[static_cast<size_t>(rank)];
    if (&group == levels_.site.get()) return where.site == place().site ? where.rank : kNobody;
    return where.rank == 0 ? static_cast<int>(where.site) : kNobody;
  }

  static OpOptions options_of(const Operation& op) {
    return {.timeout = time_left(op.deadline), .tag = op.tag, .pack = op.packed};
  }
  // Runs a part of an operation in one of the groups. False: it has failed, and the whole with it.
  template <typename Run>
  bool in(const std::shared_ptr<Group>& group, Run run) {
    if (group == nullptr) return true;
    if (run(*group).ok()) return true;
    // By now when_failed() has told, or is about to; this waits until that has ended the others.
    return fail(failure_of(*group));
  }
  bool pass_on(const Operation& op, std::byte* data, int root = 0) {
    return in(levels_.site, [&](Group& group) {
      return group.broadcast(std::span(data, op.bytes()), root, options_of(op));
    });
  }

  bool run_allreduce(const Operation& op, std::byte* data) override {
    const auto sum = [&](Group& group) { return allreduce(group, op, data, options_of(op)); };
    if (one_site()) return in(levels_.all, sum);
    return in(levels_.site, sum) && in(levels_.leaders, sum) && pass_on(op, data);
  }

  // The sum of all is more than is asked for. Nothing in the product calls it.
  bool run_reduce_scatter(const Operation& op, std::byte* data) override {
    return run_allreduce(op, data);
  }

  bool run_broadcast(const Operation& op, std::byte* data) override {
    if (one_site()) {
      return in(levels_.all, [&](Group& group) {
        return group.broadcast(std::span(data, op.bytes()), op.peer, options_of(op));
      });
    }
    const Place root = place_[static_cast<size_t>(op.peer)];
    // Where the root does not lead, its whole site has the data before the others do.
    const bool first = root.site == place().site && root.rank > 0;
    return (!first || pass_on(op, data, root.rank)) &&
           in(levels_.leaders,
              [&](Group& group) {
                return group.broadcast(std::span(data, op.bytes()), static_cast<int>(root.site),
                                       options_of(op));
              }) &&
           (first || pass_on(op, data));
  }

  bool run_allgather(const Operation& op, std::byte* data) override {
    const auto part = [&](int rank) {
      const Part p = part_of(op.count, rank, size());
      return std::span(data + p.begin * op.element, p.size * op.element);
    };
    auto& scratch = scratch_[op.tag];
    // Parts of an allgather have one size here: `room`, of which each member uses what it needs.
    const auto gather = [&](const std::shared_ptr<Group>& group, size_t room, auto&& members_of) {
      if (group == nullptr) return true;
      scratch.resize(room * static_cast<size_t>(group->size()));
      const auto place_in = [&](int r) { return scratch.data() + static_cast<size_t>(r) * room; };
      std::byte* out = place_in(group->rank());
      for (const int member : members_of(group->rank())) {
        out = std::ranges::copy(part(member), out).out;
      }
      const bool done =
          in(group, [&](Group& g) { return g.allgather(std::span(scratch), options_of(op)); });
      for (int r = 0; done && r < group->size(); ++r) {
        const std::byte* from = place_in(r);
        for (const int member : members_of(r)) {
          const auto to = part(member);
          std::copy_n(from, to.size(), to.begin());
          from += to.size();
        }
      }
      return done;
    };
    const size_t largest = part(0).size();
    size_t most = 0;
    for (const auto& members : levels_.sites) most = std::max(most, members.size());
    const auto& here = one_site() ? levels_.all : levels_.site;
    return gather(here, largest,
                  [&](int r) {
                    return std::span(members_here()).subspan(static_cast<size_t>(r), 1);
                  }) &&
           gather(levels_.leaders, most * largest,
                  [&](int r) { return std::span(levels_.sites[static_cast<size_t>(r)]); }) &&
           pass_on(op, data);
  }

  // Like the other collectives, so that members that disagree about what to do find out.
  bool run_barrier(const Operation& op) override {
    const auto meet = [&](Group& group) { return group.barrier(options_of(op)); };
    if (one_site()) return in(levels_.all, meet);
    return in(levels_.site, meet) && in(levels_.leaders, meet) && in(levels_.site, meet);
  }

  bool run_send(const Operation& op, const std::byte* data) override {
    return in(levels_.all, [&](Group& group) {
      return group.send(std::span(data, op.bytes()), op.peer, options_of(op));
    });
  }
  bool run_recv(const Operation& op, std::byte* data) override {
    return in(levels_.all, [&](Group& group) {
      return group.recv(std::span(data, op.bytes()), op.peer, options_of(op));
    });
  }

  void shut(const GroupFailure* failure) override {
    if (failure == nullptr) return;
    for_each_group([&](Group& group) {
      group.end({.kind = failure->kind,
                 .origin = rank_in(group, failure->origin),
                 .suspect = rank_in(group, failure->suspect),
                 .message = failure->message});
    });
  }

  const TwoLevels levels_;
  std::vector<Place> place_;                                     // by rank
  std::array<std::vector<std::byte>, kCollectiveTags> scratch_;  // of allgather, by tag
};

// Collective: everybody's text, by rank.
Result<std::vector<std::string>> all_texts(Group& all, const std::string& own, Duration timeout) {
  const Moment deadline = std::chrono::steady_clock::now() + timeout;
  const auto size = static_cast<size_t>(all.size());
  const auto rank = static_cast<size_t>(all.rank());
  std::vector<uint32_t> lengths(size);
  lengths[rank] = static_cast<uint32_t>(own.size());
  MUSTER_RETURN_IF_ERROR(all.allgather(std::span(lengths), {.timeout = timeout}));
  const size_t room = std::ranges::max(lengths);
  std::vector<char> texts(room * size);
  std::ranges::copy(own, texts.begin() + static_cast<ptrdiff_t>(rank * room));
  MUSTER_RETURN_IF_ERROR(all.allgather(std::span(texts), {.timeout = time_left(deadline)}));
  std::vector<std::string> result;
  for (size_t r = 0; r < size; ++r) result.emplace_back(texts.data() + r * room, lengths[r]);
  return result;
}

}  // namespace

std::unique_ptr<Group> make_two_level_group(TwoLevels levels) {
  return std::make_unique<TwoLevelGroup>(std::move(levels));
}

Result<std::vector<std::string>> GroupRendezvous::exchange(int rank, int size,
                                                           const std::string& blob,
                                                           Moment /*deadline*/,
                                                           std::stop_token /*stop*/) {
  MUSTER_CHECK(size == static_cast<int>(members_.size()) &&
                   members_.at(static_cast<size_t>(rank)) == all_.rank(),
               "those who meet are the members of the new group");
  MUSTER_TRY(const auto texts, all_texts(all_, blob, timeout_));
  std::vector<std::string> result;
  for (const int member : members_) result.push_back(texts[static_cast<size_t>(member)]);
  return result;
}

Status GroupRendezvous::attend(Group& all, Duration timeout) {
  auto texts = all_texts(all, "", timeout);
  if (!texts.ok()) return std::move(texts).error();
  return {};
}

}  // namespace muster::comm
