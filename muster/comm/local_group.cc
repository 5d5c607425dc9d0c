#include "muster/comm/local_group.h"

#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace muster::comm {

// Everything the members share. One mutex: members hold it for moments only, never while they
// touch data.
struct LocalHub::State {
  // Collectives of one tag. `round` counts meetings; the last to arrive begins the next.
  struct Tag {
    // What each member brings: set before the first meeting of a collective, read by the others
    // between that and the last.
    std::vector<std::byte*> data;
    Operation call;  // of the first to arrive at the first meeting, who is
    int first = 0;   // this member; the others compare
    int arrived = 0;
    uint64_t round = 0;
    std::vector<bool> here;  // who has arrived in this round
  };
  // A send that waits for its recv: the receiver copies straight from the sender's memory.
  struct Letter {
    const std::byte* data;
    size_t bytes;
    bool taken = false;
  };

  explicit State(std::vector<std::string> member_names)
      : names(std::move(member_names)),
        members(names.size()),
        taken(names.size()),
        tags(kCollectiveTags) {
    for (Tag& tag : tags) {
      tag.data.resize(names.size());
      tag.here.resize(names.size());
    }
  }

  const std::vector<std::string> names;
  std::mutex mutex;
  std::condition_variable changed;
  // All below guarded by mutex.
  std::vector<Member*> members;  // null before join and after leaving
  std::vector<bool> taken;
  std::optional<GroupFailure> failure;
  // Members that are reading others' memory. An operation that fails waits for them before it
  // returns, because its caller may then free the memory; none of them blocks in there.
  int reading = 0;
  std::vector<Tag> tags;
  std::map<std::tuple<int, int, uint32_t>, Letter*> letters;  // by (from, to, tag)
};

class LocalHub::Member final : public Group {
  using Lock = std::unique_lock<std::mutex>;

 public:
  using Group::record;

  Member(int rank, std::shared_ptr<LocalHub> hub, State& state)
      : Group(rank, state.names), hub_(std::move(hub)), state_(state) {}

  std::string_view transport() const override { return "one process"; }

  ~Member() override {
    retire();
    const Lock lock(state_.mutex);
    state_.members[static_cast<size_t>(rank())] = nullptr;
    state_.changed.notify_all();
  }

 private:
  // A failure that somebody has put into the hub becomes this member's own.
  bool adopt(Lock& lock) {
    GroupFailure failure = *state_.failure;
    lock.unlock();
    fail(std::move(failure));
    wait_for_readers();
    return false;
  }
  bool give_up(GroupFailure failure) {
    fail(std::move(failure));
    wait_for_readers();
    return false;
  }
  void wait_for_readers() {
    Lock lock(state_.mutex);
    state_.changed.wait(lock, [&] { return state_.reading == 0; });
  }

  bool gone(int r) const {
    const auto i = static_cast<size_t>(r);
    return state_.taken[i] && state_.members[i] == nullptr;
  }
  // A member that has left and can never arrive.
  std::optional<int> departed(const State::Tag& tag) const {
    for (int r = 0; r < size(); ++r) {
      if (!tag.here[static_cast<size_t>(r)] && gone(r)) return r;
    }
    return std::nullopt;
  }
  static int late(const State::Tag& tag) {
    for (size_t r = 0; r < tag.here.size(); ++r) {
      if (!tag.here[r]) return static_cast<int>(r);
    }
    return kNobody;
  }
  GroupFailure left_failure(int r, const Operation& op) const {
    return {.kind = FailureKind::kPeerLost,
            .origin = r,
            .message = fmt::format("{} left the group while {} waited for it in {}", describe(r),
                                   describe(rank()), comm::describe(op))};
  }
  GroupFailure late_failure(int r, const Operation& op) const {
    return {
        .kind = FailureKind::kDeadline,
        .origin = r,
        .message = fmt::format("{} did not come to {} in time", describe(r), comm::describe(op))};
  }

  // Comes with `data` to the first meeting of a collective and compares notes.
  bool arrive(const Operation& op, std::byte* data) {
    Lock lock(state_.mutex);
    if (state_.failure) return adopt(lock);
    State::Tag& tag = state_.tags[op.tag];
    if (tag.arrived == 0) {
      tag.call = op;
      tag.first = rank();
    } else if (!same_call(tag.call, op)) {
      GroupFailure failure{
          .kind = FailureKind::kDisagreement,
          .origin = tag.first,
          .message = fmt::format("{} called {} where {} called {}", describe(tag.first),
                                 comm::describe(tag.call), describe(rank()), comm::describe(op))};
      lock.unlock();
      return give_up(std::move(failure));
    }
    tag.data[static_cast<size_t>(rank())] = data;
    return meet(op, lock);
  }

  bool meet(const Operation& op) {
    Lock lock(state_.mutex);
    if (state_.failure) return adopt(lock);
    return meet(op, lock);
  }

  // Waits until every member has come here as often as this one.
  bool meet(const Operation& op, Lock& lock) {
    State::Tag& tag = state_.tags[op.tag];
    tag.here[static_cast<size_t>(rank())] = true;
    if (++tag.arrived == size()) {
      tag.arrived = 0;
      tag.here.assign(tag.here.size(), false);
      ++tag.round;
      state_.changed.notify_all();
      return true;
    }
    const uint64_t round = tag.round;
    const auto over = [&] { return tag.round != round || state_.failure || departed(tag); };
    const bool woken = state_.changed.wait_until(lock, op.deadline, over);
    if (tag.round != round) return true;
    if (state_.failure) return adopt(lock);
    const int absent = woken ? *departed(tag) : late(tag);
    lock.unlock();
    return give_up(woken ? left_failure(absent, op) : late_failure(absent, op));
  }

  // Runs `read`, which touches other members' memory and never blocks, unless the group failed.
  template <typename Read>
  bool reading(Read read) {
    Lock lock(state_.mutex);
    if (state_.failure) return adopt(lock);
    ++state_.reading;
    lock.unlock();
    read();
    lock.lock();
    if (--state_.reading == 0) state_.changed.notify_all();
    return true;
  }

  // Valid between the first and the last meeting of a collective.
  std::byte* data_of(const Operation& op, int r) const {
    return state_.tags[op.tag].data[static_cast<size_t>(r)];
  }

  // Each member adds up its own part: nobody else reads or writes that part of any member's data,
  // so it can do so in place.
  bool sum_own_part(const Operation& op, std::byte* data) {
    const Part part = part_of(op.count, rank(), size());
    return reading([&] {
      for (int step = 1; step < size(); ++step) {
        const int r = (rank() + step) % size();
        reduce_into(op.reduction, data + part.begin * op.element,
                    data_of(op, r) + part.begin * op.element, part.size);
      }
    });
  }

  bool copy_other_parts(const Operation& op, std::byte* data) {
    return reading([&] {
      for (int step = 1; step < size(); ++step) {
        const int r = (rank() + step) % size();
        const Part part = part_of(op.count, r, size());
        if (part.size == 0) continue;
        std::memcpy(data + part.begin * op.element, data_of(op, r) + part.begin * op.element,
                    part.size * op.element);
      }
    });
  }

  bool run_allreduce(const Operation& op, std::byte* data) override {
    // The last meeting: nobody's data may change while others still copy from it.
    return arrive(op, data) && sum_own_part(op, data) && meet(op) && copy_other_parts(op, data) &&
           meet(op);
  }

  bool run_reduce_scatter(const Operation& op, std::byte* data) override {
    return arrive(op, data) && sum_own_part(op, data) && meet(op);
  }

  bool run_allgather(const Operation& op, std::byte* data) override {
    return arrive(op, data) && copy_other_parts(op, data) && meet(op);
  }

  bool run_broadcast(const Operation& op, std::byte* data) override {
    if (!arrive(op, data)) return false;
    if (rank() != op.peer && op.count > 0) {
      if (!reading([&] { std::memcpy(data, data_of(op, op.peer), op.bytes()); })) return false;
    }
    return meet(op);
  }

  bool run_barrier(const Operation& op) override { return arrive(op, nullptr); }

  bool run_send(const Operation& op, const std::byte* data) override {
    State::Letter letter{data, op.bytes()};
    const auto key = std::tuple(rank(), op.peer, op.tag);
    Lock lock(state_.mutex);
    if (state_.failure) return adopt(lock);
    MUSTER_CHECK(state_.letters.emplace(key, &letter).second,
                 "two sends at the same time to one member with one tag");
    state_.changed.notify_all();
    const bool woken = state_.changed.wait_until(
        lock, op.deadline, [&] { return letter.taken || state_.failure || gone(op.peer); });
    if (letter.taken) return true;
    state_.letters.erase(key);
    return undelivered(op, lock, woken);
  }

  bool run_recv(const Operation& op, std::byte* data) override {
    const auto key = std::tuple(op.peer, rank(), op.tag);
    Lock lock(state_.mutex);
    const auto here = [&] { return state_.letters.contains(key); };
    const bool woken = state_.changed.wait_until(
        lock, op.deadline, [&] { return here() || state_.failure || gone(op.peer); });
    if (state_.failure || !here()) return undelivered(op, lock, woken);
    State::Letter* letter = state_.letters.at(key);
    if (letter->bytes != op.bytes()) {
      GroupFailure failure{
          .kind = FailureKind::kDisagreement,
          .origin = op.peer,
          .message = fmt::format("{} sent {} bytes where {} called {}", describe(op.peer),
                                 letter->bytes, describe(rank()), comm::describe(op))};
      lock.unlock();
      return give_up(std::move(failure));
    }
    ++state_.reading;
    lock.unlock();
    if (letter->bytes > 0) std::memcpy(data, letter->data, letter->bytes);
    lock.lock();
    --state_.reading;
    letter->taken = true;
    state_.letters.erase(key);
    state_.changed.notify_all();
    return true;
  }

  bool undelivered(const Operation& op, Lock& lock, bool woken) {
    if (state_.failure) return adopt(lock);
    lock.unlock();
    return give_up(woken ? left_failure(op.peer, op) : late_failure(op.peer, op));
  }

  // This member's failure becomes everybody's.
  void shut(const GroupFailure* failure) override {
    const Lock lock(state_.mutex);
    if (failure != nullptr && !state_.failure) {
      state_.failure = *failure;
      for (Member* member : state_.members) {
        if (member != nullptr && member != this) member->record(*failure);
      }
    }
    state_.changed.notify_all();
  }

  const std::shared_ptr<LocalHub> hub_;  // keeps state_ alive
  State& state_;
};

LocalHub::LocalHub(std::vector<std::string> names)
    : state_(std::make_unique<State>(std::move(names))) {}
LocalHub::~LocalHub() = default;

std::shared_ptr<LocalHub> LocalHub::create(std::vector<std::string> names) {
  MUSTER_CHECK(!names.empty(), "a group has at least one member");
  return std::shared_ptr<LocalHub>(new LocalHub(std::move(names)));
}

Result<std::unique_ptr<Group>> LocalHub::join(int rank) {
  State& state = *state_;
  MUSTER_CHECK(rank >= 0 && rank < static_cast<int>(state.names.size()),
               "a rank must be below the number of names");
  const auto i = static_cast<size_t>(rank);
  const std::lock_guard lock(state.mutex);
  if (state.taken[i]) {
    return Error(ErrorKind::kInternal, "rank {} ({}) has joined this group already", rank,
                 state.names[i]);
  }
  auto group = std::make_unique<Member>(rank, shared_from_this(), state);
  state.taken[i] = true;
  state.members[i] = group.get();
  if (state.failure) group->record(*state.failure);
  return std::unique_ptr<Group>(std::move(group));
}

std::unique_ptr<Group> solo_group(std::string name) {
  return std::move(LocalHub::create({std::move(name)})->join(0)).value();
}

}  // namespace muster::comm
