#include "muster/roster/simulation/group.h"

#include <algorithm>

namespace muster::roster::simulation {

using namespace std::chrono_literals;

Group::Group(World& world, Witness& witness, std::shared_ptr<const Roster> roster,
             std::vector<int> slots, int32_t lanes, Duration silence)
    : world_(world),
      witness_(witness),
      roster_(std::move(roster)),
      slots_(std::move(slots)),
      members_(slots_.size(), nullptr),
      gone_(slots_.size(), false),
      frozen_(slots_.size()),
      silent_(slots_.size(), false),
      due_(slots_.size(), Moment::max()),
      watched_(slots_.size(), false),
      lanes_(lanes),
      silence_(silence) {}

// When no link between members is cut any more, as things are.
Moment Group::links_whole() const {
  Moment result{};
  for (const auto& [ends, until] : world_.cuts()) {
    if (until > world_.now() && std::ranges::find(slots_, ends.first) != slots_.end() &&
        std::ranges::find(slots_, ends.second) != slots_.end()) {
      result = std::max(result, until);
    }
  }
  return result;
}

void Group::arrive(int rank, GroupMember* member, Duration deadline) {
  const auto place = static_cast<size_t>(rank);
  members_[place] = member;
  ++arrived_;
  const auto self = shared_from_this();
  for (size_t other = 0; other < gone_.size(); ++other) {
    if (gone_[other]) tell_failed(rank, "connection refused", 1ms, Suspect::kNone);
  }
  // A member that has reached all its peers leaves them time to say whom they cannot reach.
  world_.after(deadline + 2s, [self, rank, place] {
    if (self->formed_ || !self->members_[place]) return;
    self->tell_failed(rank, "others could not connect", 0ns, Suspect::kNone);
  });
  world_.after(deadline, [self, rank, place] {
    if (self->formed_ || !self->members_[place] || self->suspect_of(rank) < 0) return;
    self->tell_failed(rank, "could not connect in time", 0ns, Suspect::kSilent);
  });
  if (arrived_ < size()) return;
  const Moment whole = std::max(links_whole(), world_.now());
  world_.at(whole + world_.between(1ms, 15ms), [self] {
    if (std::ranges::find(self->gone_, true) != self->gone_.end()) return;
    self->formed_ = true;
    for (const auto& one : self->members_) {
      // Each sees it a little earlier or later.
      self->world_.after(self->world_.between(0ns, 2ms), [self, one] {
        if (std::ranges::find(self->members_, one) != self->members_.end()) one->on_formed();
      });
    }
  });
}

void Group::enter(int rank, size_t index, const Offering& offering, Duration takes) {
  const auto place = static_cast<size_t>(rank);
  while (operations_.size() <= index) {
    Operation next;
    next.has_entered.assign(slots_.size(), false);
    next.completed.assign(slots_.size(), false);
    next.reports.resize(slots_.size());
    operations_.push_back(std::move(next));
  }
  Operation& operation = operations_[index];
  operation.has_entered[place] = true;
  ++operation.entered;
  operation.reports[place] = offering.report;
  if (offering.message) {
    operation.message.of = offering.message->of;
    operation.message.overflow |= offering.message->overflow;
    operation.message.newer = std::max(operation.message.newer, offering.message->newer);
  }
  if (offering.state != 0) operation.state = offering.state;
  operation.sum += offering.sum;
  if (offering.lanes) {
    operation.lanes.resize(static_cast<size_t>(lanes_), 0);
    for (const int32_t lane : *offering.lanes) ++operation.lanes[static_cast<size_t>(lane)];
  }
  due_[place] = world_.now() + silence_;
  if (!watched_[place]) watch(rank);
  if (operation.entered < size()) return;
  const auto self = shared_from_this();
  if (offering.lanes) witness_.reduced(offering.position, operation.lanes);
  const Moment begin = std::max(links_whole(), world_.now()) + takes;
  for (int one = 0; one < size(); ++one) {
    world_.at(begin + world_.between(100us, 3ms),
              [self, one, index] { self->complete(one, index); });
  }
}

void Group::complete(int rank, size_t index) {
  const auto place = static_cast<size_t>(rank);
  if (!members_[place] || operations_[index].completed[place]) return;
  if (frozen_[place] == Moment::max()) return;
  if (frozen_[place] > world_.now()) {
    const auto self = shared_from_this();
    world_.at(frozen_[place], [self, rank, index] { self->complete(rank, index); });
    return;
  }
  operations_[index].completed[place] = true;
  due_[place] = Moment::max();
  members_[place]->on_complete(index);
}

// The first peer it cannot connect to, or that is silent; not one that closed. -1: there is none.
int Group::suspect_of(int rank) const {
  const auto place = static_cast<size_t>(rank);
  for (size_t other = 0; other < slots_.size(); ++other) {
    // Over a cut link nobody sees whether the other has gone.
    if (world_.is_cut(slots_[place], slots_[other])) return static_cast<int>(other);
  }
  for (size_t other = 0; other < slots_.size(); ++other) {
    if (other == place) continue;
    // A member that gave its addresses and has not come yet has said nothing to anybody.
    const bool silent = members_[other] != nullptr ? !members_[other]->answers()
                        : gone_[other]             ? silent_[other]
                                                   : !formed_;
    if (silent) return static_cast<int>(other);
  }
  return -1;
}

// Looks after a member's deadlines: one event for many operations, since most are met.
void Group::watch(int rank) {
  const auto place = static_cast<size_t>(rank);
  watched_[place] = true;
  world_.at(due_[place], [self = shared_from_this(), rank, place] {
    self->watched_[place] = false;
    if (!self->members_[place] || self->due_[place] == Moment::max()) return;
    if (self->due_[place] <= self->world_.now()) {
      if (self->suspect_of(rank) >= 0) {
        self->tell_failed(rank, "a peer is silent", 0ns, Suspect::kSilent);
        return;
      }
      self->due_[place] = self->world_.now() + self->silence_ / 3;
    }
    self->watch(rank);
  });
}

void Group::tell_failed(int rank, const char* why, Duration delay, Suspect suspect) {
  const auto self = shared_from_this();
  world_.after(delay, [self, rank, why, suspect] {
    GroupMember* member = self->members_[static_cast<size_t>(rank)];
    if (member) member->on_failed(suspect == Suspect::kNone ? -1 : self->suspect_of(rank), why);
  });
}

void Group::leave(int rank, Going going) {
  const auto place = static_cast<size_t>(rank);
  members_[place] = nullptr;
  gone_[place] = true;
  silent_[place] = going == Going::kSilently;
  if (going == Going::kByPlan) return;
  bool seen_by_some = false;
  bool missed_by_some = false;
  const Operation* last = operations_.empty() ? nullptr : &operations_.back();
  const bool under_way = last && last->entered == size();
  for (int one = 0; one < size(); ++one) {
    const auto other = static_cast<size_t>(one);
    if (!members_[other]) continue;
    if (under_way) (last->completed[other] ? seen_by_some : missed_by_some) = true;
    // What was under way may have reached this one already; if not, it never will.
    const bool may_complete = under_way && world_.chance(0.5);
    if (!may_complete) frozen_[other] = Moment::max();
    if (going == Going::kSilently || world_.is_cut(slots_[place], slots_[other])) continue;
    tell_failed(one, "connection reset",
                may_complete ? world_.between(4ms, 8ms) : world_.between(200us, 3ms),
                Suspect::kNone);
  }
  if (seen_by_some && missed_by_some) ++witness_.tally.split;
}

void Group::freeze(int rank, Moment until) {
  frozen_[static_cast<size_t>(rank)] = until;
  for (size_t other = 0; other < frozen_.size(); ++other) {
    if (world_.chance(0.5)) frozen_[other] = std::max(frozen_[other], until);
  }
}

}  // namespace muster::roster::simulation
