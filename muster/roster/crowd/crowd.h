// Many workers in one process: each has a connection of its own to the coordinator and a Follower
// (follower.h), as Client does; one thread serves them all, and nobody computes anything. Their
// groups consist of an exchange of addresses, their steps of nothing.
//
// What it is for: a coordinator with thousands of real connections, on a machine that could not run
// thousands of workers.
//
// Safe for concurrent use.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/roster/follower.h"
#include "muster/roster/wire/stream.h"

namespace muster::roster {

class Crowd {
 public:
  Crowd(std::string address, std::string job, const Clock& clock);
  ~Crowd();

  // Starts workers; their ids are numbers, counted on.
  void add(size_t workers);
  // Waits until all are in the group of one roster, which has just them as members.
  Status wait_together(Duration timeout);

  // How long after the loss the next roster had arrived, and all were together again without it.
  struct Loss {
    Duration roster_at_half{0};
    Duration roster_at_last{0};
    Duration together{0};
  };
  // Breaks the connection of the worker that was added first, as the end of its process would.
  Result<Loss> lose_one(Duration timeout);

 private:
  struct Worker;

  void run();
  void touch(Worker& worker);
  void carry_out(Worker& worker, FollowerAction& action);
  bool work(Worker& worker);
  void drop_stream(Worker& worker);
  bool together() const;

  const std::string address_;
  const std::string job_;
  const Clock& clock_;
  grpc::CompletionQueue queue_;

  mutable std::mutex mutex_;  // all below
  std::condition_variable changed_;
  bool stopping_ = false;
  size_t added_ = 0;
  std::deque<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Worker>> past_workers_;
  std::vector<std::unique_ptr<wire::Stream>> past_streams_;  // with operations still out
  std::set<std::pair<Moment, Worker*>> timers_;
  // Messages that have arrived, in order. A Follower takes a millisecond for a roster of thousands;
  // in a job each has a processor of its own, here they would hold up each other's messages.
  std::deque<std::pair<Worker*, v1::ToWorker>> inbox_;
  size_t in_group_ = 0;  // of newest_
  RosterNumber newest_ = 0;
  size_t newest_size_ = 0;

  Thread thread_;
};

}  // namespace muster::roster
