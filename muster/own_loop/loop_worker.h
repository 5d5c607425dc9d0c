// The worker behind a program's own loop: train/'s worker on a thread of its own, which has the
// program's thread compute lanes. Loop (loop.h) and ForeignLoop (foreign_loop.h) are built on it.
//
// Only one of the two threads runs at any time, so nothing but the turn is shared. All functions
// are for the program's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/thread.h"
#include "muster/model/net.h"
#include "muster/own_loop/adopted.h"
#include "muster/own_loop/lent_memory.h"
#include "muster/train/worker.h"

namespace muster {

// Throws std::logic_error if not: a mistake of the program.
void require(bool good, const char* mistake);

class LoopWorker {
 public:
  // `words`: the command line of a worker (train/worker.h), its name included.
  explicit LoopWorker(std::vector<std::string> words);
  // Ends the worker, with an error if it is not over yet.
  ~LoopWorker() { leave(); }
  LoopWorker(const LoopWorker&) = delete;
  LoopWorker& operator=(const LoopWorker&) = delete;

  // The job that the words name.
  Result<config::Job> find_job();
  // Runs the worker to its end on this thread; for what needs no loop. Returns its exit code.
  int run_here();

  // What is trained, and with which data. Call it once.
  void set_model(std::shared_ptr<model::Net> net, OwnData data);
  bool has_model() const { return net_ != nullptr; }
  // Whether `muster resume` can start this program again. It can if this is not called.
  void set_resumable(bool resumable) { lanes_.resumable = resumable; }
  // Whether the words ask for training.
  bool trains() const { return words_.size() >= 2 && words_[1] == "train"; }
  // Starts the worker's thread. Returns when there is a lane to compute, or it has ended.
  void start();

  // The loop: begin_step(), next_lane() until there is none, commit(). Each throws std::logic_error
  // if it is not its turn; `caller` begins that sentence. False: the worker has ended.
  bool begin_step(const char* caller);
  // Seeds torch's generator for the lane. Before the next call, say how the lane ended: finished(),
  // or it counts as forgotten.
  const train::OwnLane* next_lane(const char* caller);
  void lane_finished(double loss) { loss_ = loss; }
  // Of the lane that is computed: train::OwnLanes::trial.
  const std::string& trial() const { return lanes_.trial; }
  // Whether the step was committed.
  bool commit(const char* caller);

  // While gradients may come: during the program's backward pass of a lane.
  void take_gradients(bool now) { lanes_.takes_gradients = now; }
  // Keeps the state of the job at this address where it is; null: there is none of it.
  std::shared_ptr<const void> owner_of(const void* address) const { return memory_.owner(address); }
  // The key of all random numbers of a lane.
  uint64_t seed_of(const train::OwnLane& lane) const;

  int64_t steps() const;  // committed
  bool finished() const;  // training has come to its end
  void progress();
  // Ends the worker, with an error if it is not over yet, and waits for it.
  void leave();
  // Nothing while it runs.
  std::optional<int> exit_code() const;

 private:
  Result<double> run_lane(const train::OwnLane& work);
  Status lanes_over(int64_t step);
  void give_turn_to_program(std::unique_lock<std::mutex>& lock);
  void give_turn_to_worker(std::unique_lock<std::mutex>& lock);
  void wait_for_turn(std::unique_lock<std::mutex>& lock);
  void end(int code);

  std::vector<std::string> words_;
  std::vector<char*> argv_;
  uint64_t seed_ = 0;
  LentMemory memory_;
  std::shared_ptr<model::Net> net_;
  OwnData data_;
  train::OwnLanes lanes_;
  train::Registries registries_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below: guarded by mutex_.
  bool programs_turn_ = false;
  std::optional<train::OwnLane> wanted_;  // the lane to compute; nothing: all are
  std::optional<Error> error_;            // of the last lane
  double computed_ = 0;                   // the loss of the last lane
  bool abandoned_ = false;                // the program has left its loop
  int64_t steps_ = 0;
  bool finished_ = false;
  std::optional<int> exit_code_;

  // The program's thread only.
  enum class Stage { kBetween, kLanes, kComputed } stage_ = Stage::kBetween;
  bool in_lane_ = false;  // the program computes wanted_
  std::optional<double> loss_;

  Thread thread_;
};

}  // namespace muster
