// The order of asynchronous training: which tasks there are, who computes them, and in which order
// their gradients take effect.
//
// A task is one lane of one step, or of some; tasks are numbered, lane by lane. Workers take one
// after the other, read rows, compute, push gradients to shards, where they wait (TableData,
// kStage), and then say here that they are done. That gives the push its place in the order.
// Whoever knows the order tells the shards (kApply), so a worker that is lost in the middle loses
// nothing that has a place, and leaves nothing behind that has none.
//
// A ticket is one attempt at a task. When workers form a new group, all tickets that are out are
// void, and their tasks are given to others: so a worker that was given up, and comes back, has no
// effect.
//
// A round is the tasks of some steps. All of them have a place before the next round is opened, so
// the end of a round is a cut of the data order: there everything that was trained is in the rows.
// A round can be cut short (CutRound): no tasks are given out any more but those up to the next
// step boundary.
//
// Staleness. With a bound s, task t is given to nobody before all tasks below t - s have a place.
// (Bounded delay: Li et al., "Scaling distributed machine learning with the parameter server",
// OSDI 2014; Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
// server", NIPS 2013.)
//
// Chains. With a chain of c, task t is given to nobody before task t - c has a place: tasks of one
// lane follow each other, each computed from what the one before has pushed. Others are not held
// up: of the tasks that may be given out the first is, but a worker that is done gets the successor
// of its own task only if there is no other one; so a slow worker does not keep the lane that is
// behind.
//
// The record. What each push was computed from is kept with its place: which task, and how many
// updates each of the shards had when it was read (push_record.h). Together with the job that is
// enough to compute the run again, bit for bit.
//
// Part of one shard, the first. Equal calls in equal order give equal contents. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/ps/push_record.h"

namespace muster::ps {

inline constexpr uint32_t kOrderShard = 0;

// What a task came to. A round keeps it until the next one.
struct TaskResult {
  double loss = 0;
  uint64_t samples = 0;
  uint64_t used = 0;  // a hash of the samples' numbers
  bool operator==(const TaskResult&) const = default;
};

// A group of workers begins, or goes on with, a round.
struct OpenRound {
  uint64_t openings = 0;  // as it was seen before: if there was another one since, it has no effect
  uint64_t token = 0;     // drawn by the group; not 0
  int64_t first = 0;      // tasks
  int64_t end = 0;        // past the last one
  int64_t staleness = -1;  // -1: any
  int64_t pushes = 1;      // that make one update
  int64_t chain = 0;       // 0: none
};

// A worker is done with a task, or wants one, or both.
struct NextTask {
  uint64_t token = 0;   // of its group
  uint64_t worker = 0;  // its rank there
  uint64_t done = 0;    // a ticket; 0: none
  TaskResult result;
  std::vector<std::vector<int64_t>> versions;  // PushRecord::versions
};

// A worker wants the round to end early: after as few units as contain all tasks that were given
// out, and at least one. Whoever opens the round again, with the end that was planned, goes on with
// the shorter one.
struct CutRound {
  uint64_t token = 0;  // of its group
  int64_t unit = 1;    // tasks: whole steps, and whole updates
};

std::string order_bytes(const OpenRound& open);
std::string order_bytes(const CutRound& cut);
std::string order_bytes(const NextTask& next);

// A push that has a place.
struct Ordered {
  uint64_t ticket = 0;
  int64_t staleness = 0;  // updates since the oldest of what it was computed from
  bool operator==(const Ordered&) const = default;
};

// What a worker sees of the order.
struct OrderView {
  uint64_t openings = 0;
  uint64_t token = 0;
  int64_t first = 0;
  int64_t end = 0;
  int64_t finished = 0;  // tasks of the round
  uint64_t ticket = 0;   // this worker's; 0: it has none
  int64_t task = 0;
  uint64_t oldest = 0;  // no ticket before this one will get a place any more
  int64_t from = 0;     // places: of the first in `ordered`
  std::vector<Ordered> ordered;
  std::vector<TaskResult> results;  // if asked for, by task

  bool over() const { return finished == end - first; }
  int64_t places() const { return from + static_cast<int64_t>(ordered.size()); }
};
std::string encode_view(const OrderView& view);
Result<OrderView> decode_view(std::string_view bytes);

class TaskOrder {
 public:
  Status check(std::string_view op) const;
  // Only what check() has accepted.
  void apply(std::string_view op);

  // `from`: the first place that is of interest. What is before the round is not there any more.
  OrderView view(uint64_t worker, int64_t from, bool results) const;
  // PushRecords, one after the other, from the first place on.
  const std::string& record() const { return record_; }
  int64_t places() const { return places_; }

  void save(std::string& to) const;
  Status load(std::string_view& from);

 private:
  struct Taken {
    uint64_t ticket = 0;
    int64_t task = 0;
  };
  void apply(OpenRound open);
  void apply(const CutRound& cut);
  void apply(const NextTask& next);
  void finish(const Taken& taken, const NextTask& next);
  int64_t oldest_unfinished() const;
  // The first task that may be given out, but not `except`; -1: there is none.
  int64_t find_task(int64_t except) const;
  bool may_begin(int64_t task) const;
  void give(int64_t task, uint64_t worker);

  uint64_t openings_ = 0;
  OpenRound round_;
  int64_t next_task_ = 0;
  uint64_t last_ticket_ = 0;
  std::map<uint64_t, Taken> taken_;  // by worker
  std::set<int64_t> waiting_;        // tasks before next_task_ that nobody has
  int64_t finished_ = 0;             // of the round
  std::vector<TaskResult> results_;  // of the round, by task
  int64_t places_ = 0;
  std::vector<Ordered> ordered_;  // of the round
  std::string record_;
};

}  // namespace muster::ps
