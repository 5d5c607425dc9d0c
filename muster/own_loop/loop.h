// A libtorch training loop of your own that Muster makes elastic and exact: workers may crash,
// hang, join and leave, and the weights have the same bits as in an undisturbed run on one worker.
//
//   muster::Loop loop(argc, argv);       // joins the job that this process was started for
//   Net net;                             // any torch::nn::Module
//   loop.adopt(*net, {images, labels});  // its weights are now the job's
//   while (loop.step()) {
//     for (muster::Lane& lane : loop.lanes()) {
//       const auto output = net->forward(lane.take(images));
//       lane.backward(torch::nll_loss(output, lane.take(labels)));
//     }
//     loop.commit();
//   }
//   return loop.finish();
//
// The job file has the rest: batch, lanes, length, optimizer, checkpoints, audits, number of
// workers. It says `model: { use: own-loop }` and `data: { train: { format: own-loop } }`. Start it
// with `muster train JOB --worker THIS_PROGRAM`. examples/own-loop is a complete program.
//
// What a lane computes must depend on the weights, the lane's samples and torch's random numbers
// alone: not on other lanes, a clock, or what earlier steps left behind. Torch's generator is
// seeded for each lane with (seed, step, lane), so torch's dropout may be used. A step may be
// computed more than once (the first one always is, to find the scales of the sums; others after a
// worker was lost); only what commit() applied counts.
//
// A worker computes one lane at a time; start a worker for each core. All calls are made by one
// thread. Mistakes in the program are thrown as std::logic_error; an exception that nobody catches
// ends the job, with its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "muster/config/job.h"

namespace muster {

class LoopWorker;

// A slice of the batch of one step.
class Lane {
 public:
  int64_t step() const { return step_; }
  int number() const { return number_; }
  // Which samples: their numbers, as int64.
  const torch::Tensor& samples() const { return samples_; }
  // These rows of a tensor that has one for each sample.
  torch::Tensor take(const torch::Tensor& all) const { return all.index_select(0, samples_); }
  // Backward of the mean loss of these samples. Once for each lane: gradients are taken here, and
  // nowhere else.
  void backward(const torch::Tensor& loss);

 private:
  friend class Loop;
  int64_t step_ = 0;
  int number_ = 0;
  torch::Tensor samples_;
  float weight_ = 0;
  bool begun_ = false;
  LoopWorker* worker_ = nullptr;
};

class Loop {
 public:
  // First of all in main(): it chooses libtorch's settings, and seeds its generator so that modules
  // made from now on have the same weights on all workers.
  Loop(int argc, char** argv);
  // Leaving the loop early, or by an exception, ends this worker with an error.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // As the job file has it; model.args is for the program's own options.
  const config::Job& job() const;

  // Trains the parameters of `module`, from their present values. (Layers of muster::model get
  // their initial values here.) `data`: tensors with one row for each sample. They are hashed, so
  // that a worker with other data is refused. Returns when there is a step to compute, or nothing
  // to do any more. If this process was started for something other than training (`muster config
  // check`), it does that and ends.
  void adopt(torch::nn::Module& module, const std::vector<torch::Tensor>& data);
  // For data that are not tensors. `identity` is equal if and only if the data are.
  void adopt(torch::nn::Module& module, uint64_t samples, const std::string& identity);

  // Whether there is a step to compute. False: training is finished, or this worker was told to
  // leave or failed; see finished().
  bool step();
  // The lanes of the step that this worker has, computed one by one as they are iterated over.
  // None, or fewer, are no mistake: others may have them, or another worker was lost meanwhile.
  class Lanes;
  Lanes lanes();
  // Sums the gradients over all workers and updates the weights. False: the step was not committed
  // and will be computed again. Returns when the next step is ready to be computed: until step() is
  // called the program may read the module, for example to evaluate it. It must not change it. The
  // other workers wait meanwhile, so all should do the same: steps() is the same on all of them.
  bool commit();

  // Steps committed so far.
  int64_t steps() const;
  // To be called now and then in work between commit() and step() that may take longer than
  // workers.hang_timeout.
  void progress();
  // Training has come to its end, and the module has the final weights.
  bool finished() const;

  // After the loop: waits until everything is saved, and returns the exit code for main().
  int finish();

 private:
  Lane* next_lane();
  struct Worker;
  std::unique_ptr<Worker> worker_;
};

class Loop::Lanes {
 public:
  class Iterator {
   public:
    Lane& operator*() const { return *lane_; }
    Iterator& operator++() {
      lane_ = loop_->next_lane();
      return *this;
    }
    bool operator==(std::nullptr_t) const { return lane_ == nullptr; }

   private:
    friend class Lanes;
    explicit Iterator(Loop* loop) : loop_(loop), lane_(loop->next_lane()) {}
    Loop* loop_;
    Lane* lane_;
  };
  Iterator begin() const { return Iterator(loop_); }
  std::nullptr_t end() const { return nullptr; }

 private:
  friend class Loop;
  explicit Lanes(Loop* loop) : loop_(loop) {}
  Loop* loop_;
};

inline Loop::Lanes Loop::lanes() { return Lanes(this); }

}  // namespace muster
