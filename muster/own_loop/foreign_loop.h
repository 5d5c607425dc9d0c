// Loop (loop.h) for a module that is not libtorch's C++: parameters and gradients pass as
// addresses. The Python package is built on it (python/muster), and nothing in this header needs
// libtorch or Python.
//
//   muster::ForeignLoop loop(words, model, data);   // returns when there is a step to compute
//   ... let each parameter be a view of loop.parameter(i), each statistic of loop.running(i)
//   while (loop.step()) {
//     while (auto lane = loop.next_lane()) {
//       loop.begin_backward();
//       ... backward of lane->weight * mean loss; for each parameter whose gradient is complete:
//       loop.gradient(i, address);
//       loop.end_backward(loss);
//     }
//     loop.commit();
//   }
//
// All calls are made by one thread, which is also the one that computes. Mistakes of the caller are
// thrown as std::logic_error, all else that prevents a loop as ForeignError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace muster {

// The job, the machine or a file is not as it must be. `exit_code`: as in docs/exit-codes.md.
class ForeignError : public std::runtime_error {
 public:
  ForeignError(int exit_code, const std::string& sentence)
      : std::runtime_error(sentence), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// What is trained. Names are those of PyTorch: "layer1.0.conv1.weight".
struct ForeignModel {
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    const float* initial = nullptr;  // contiguous; copied
    bool trains = true;              // false: stays as it is
    bool is_embedding = false;       // a table whose rows are looked up
  };
  // A running statistic (BatchNorm): running <- (1 - momentum) * running + momentum * the mean of
  // `latest` over all lanes.
  struct Statistic {
    std::string name;
    std::vector<int64_t> shape;
    const float* initial = nullptr;
    double momentum = 0.1;
  };
  std::vector<Parameter> parameters;
  std::vector<Statistic> statistics;
};

// What it is trained with. The contents are hashed, so that a worker with other data is refused.
struct ForeignData {
  uint64_t samples = 0;
  std::string identity;                              // equal if and only if the rest is
  std::vector<std::span<const std::byte>> contents;  // must stay as they are while the loop lives
};

class ForeignLoop {
 public:
  // `words`: the command line of a worker (train/worker.h) that trains, its program included.
  // `resumable`: the run directory has a script that starts the program (make_own_run). If not, the
  // worker does not advise to resume the run when it is interrupted.
  ForeignLoop(std::vector<std::string> words, const ForeignModel& model, const ForeignData& data,
              bool resumable = true);
  // Ends this worker, with an error if training is not over.
  ~ForeignLoop();
  ForeignLoop(const ForeignLoop&) = delete;
  ForeignLoop& operator=(const ForeignLoop&) = delete;

  // Where values are. They are there until step() returns false or leave() was called; from then
  // on they are elsewhere.
  float* parameter(size_t index);
  float* running(size_t index);
  // Where the program writes the statistics of each lane before end_backward().
  float* latest(size_t index);
  // The memory at one of these addresses, which is freed when neither this object nor one of its
  // owners needs it. What is kept beyond the end of training has the values that it had then.
  std::shared_ptr<const void> owner_of(const float* values) const;

  // Whether there is a step to compute. False: training is over; see exit_code() and finished().
  bool step();
  struct Lane {
    int64_t step = 0;
    int number = 0;
    std::vector<int64_t> samples;
    float weight = 0;   // the gradient wanted is that of weight * mean loss
    uint64_t seed = 0;  // torch's generator has been seeded with it
    std::string trial;  // not empty: it is only tried, before training; train/step/own_lanes.h
  };
  std::optional<Lane> next_lane();
  // Once for each lane.
  void begin_backward();
  // The complete gradient of one parameter, contiguous. Only between begin_ and end_backward().
  void gradient(size_t index, const float* values);
  void end_backward(double mean_loss);
  // backward was left by an exception: the lane does not count.
  void abandon_backward();
  // False: the step was not committed and will be computed again. Returns when the next step is
  // ready to be computed.
  bool commit();

  int64_t steps() const;  // committed
  void progress();
  // Ends the worker, with an error if training is not over, and waits for it.
  void leave();
  bool finished() const;  // training has come to its end
  // Of the worker, as in docs/exit-codes.md; nothing while it runs.
  std::optional<int> exit_code() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// What the job that the words name says of settings that must be made before there is a model.
// Throws ForeignError.
struct ForeignSettings {
  uint64_t seed = 0;
  int threads_per_lane = 1;
};
ForeignSettings foreign_settings(std::vector<std::string> words);

// Chooses libtorch's settings for reproducible bits, and seeds its generator so that modules made
// from now on have the same weights on all workers. First of all; the calling thread is the one
// that computes.
void prepare_foreign_loop(uint64_t seed, int threads_per_lane);

// What the kernels of this process compute: the fingerprint that `muster doctor` shows.
std::string foreign_numerics();

// A new run directory for a job (YAML or JSON; the MUSTER_ environment counts, `sets` as -s). Not
// empty `run_directory`: exactly there. Returns its path; throws ForeignError with the sentence
// that says what is wrong. `name`: of the program, for errors. `start`: the words that start the
// program as a worker, in front of a worker's; they are kept for `muster resume`. Empty: nothing
// can (a notebook).
std::string make_own_run(const std::string& job, const std::string& name,
                         const std::vector<std::string>& sets, const std::string& run_directory,
                         const std::vector<std::string>& start);

// The events of a run that no launcher trains (track/run_events.h), for `muster report`. `event`:
// JSON, of the kind "start". What cannot be written is left out: training does not depend on it.
void note_run_start(const std::string& run_directory, const std::string& event);
void note_run_end(const std::string& run_directory, int exit_code);

}  // namespace muster
