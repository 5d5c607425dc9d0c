// Computes the steps of one replica after the other, with an inner Lockstep that is alone.
//
// The nets' weights are those of the working arena (StrategyParts::work), which has one replica at
// a time. Whoever uses this puts weights and the optimizer's state there before a replica begins,
// and takes them from there when it is done.
//
// If the strategy sends gradients (sync::sends_gradients), a step changes no weights: its gradient
// is put into the last of the working arena's states.
//
// Sites. If this worker is one of a site, its members compute each step together, in lockstep, each
// with some of the replica's lanes. Rank 0 leads: it tells the others which steps of which replica
// are next, and what the working arena has to begin with. The others know nothing of replicas
// (help()), so whoever leads can go on in another group with what it has, and with other helpers.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "muster/comm/group.h"
#include "muster/train/step/lockstep.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class ReplicaRunner {
 public:
  ReplicaRunner(const config::Job& job, const StrategyParts& parts);

  // What is told of its progress.
  void set_vitals(const Vitals* vitals);
  // With whom replicas are computed; null: alone. It must outlive their steps.
  void set_site(comm::Group* site);
  bool leads() const { return site_rank_ == 0; }
  int site_size() const { return site_size_; }
  // The lanes of a replica that this worker computes.
  std::vector<int> own_lanes(int replica) const;

  // The working arena now has replica `number`, as of `step`. The optimizer's state has been zero
  // since `optimizer_begin`.
  void begin(int number, int64_t step, int64_t optimizer_begin);
  // Whose steps are under way, and can be continued; -1: nobody's.
  int under_way() const { return under_way_; }
  // What the working arena has is no longer wanted.
  void give_up() { under_way_ = -1; }

  struct Record {
    std::vector<LaneResult>
        results;         // by step since the beginning of the commit, and lane of the job
    double seconds = 0;  // of its steps
  };
  // Where the steps go to.
  struct Way {
    int64_t end = 0;
    int64_t first = 0;         // step s of the job has the results from (s - first) * lanes on
    const comm::Group& group;  // ends it by failing
    Duration timeout;
    // Whether the working arenas of the other workers of the site may have something else.
    bool tell_state = true;
  };
  // Computes the replica under way. Collective over the site, whose other members are in help().
  Status run_to(const Way& way, Record& record);
  // The round has no more replicas: ends help() of the others.
  Status dismiss(Duration timeout);
  // Computes whatever the leader of the site tells, until it calls dismiss().
  Status help(const comm::Group& group, Duration timeout);

 private:
  // The optimizer of the inner Lockstep.
  const optim::Optimizer* inner_optimizer() const {
    return tap_ != nullptr ? tap_.get() : parts_.optimizer;
  }
  // What the leader of a site tells the others.
  struct Order {
    int64_t replica = -1;  // none: it is over
    int64_t step = 0;
    int64_t end = 0;
    int64_t optimizer_begin = 0;
    int64_t tell_state = 0;
  };
  Status follow_orders(const comm::Group& group, Duration timeout);
  // Collective over the site: what its leader has, all have.
  Status pass_on(Order& order, Duration timeout);
  Status pass_on_state(bool whole, Duration timeout);

  Status pass_on(std::span<std::byte> bytes, Duration timeout);
  Status run_steps(const Way& way, Record& record);
  Status run_step(const std::vector<int>& lanes, int64_t at, Record& record);

  const config::Job& job_;
  const config::Job inner_job_;  // lockstep, alone, without audits
  StrategyParts parts_;
  std::unique_ptr<optim::Optimizer> tap_;  // of gradients; may be null
  Auditor auditor_;
  Lockstep lockstep_;
  const Vitals* vitals_ = &kNoVitals;
  comm::Group* site_ = nullptr;  // may have been destroyed when no step is under way
  int site_rank_ = 0;
  int site_size_ = 1;

  int under_way_ = -1;
  int64_t next_ = 0;             // step of the replica under way
  int64_t optimizer_begin_ = 0;  // of the replica under way
  Record helped_;                // what help() computes, which the leader has too
};

}  // namespace muster::train
