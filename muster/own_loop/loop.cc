#include "muster/own_loop/loop.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "muster/own_loop/adopted.h"
#include "muster/own_loop/loop_worker.h"
#include "muster/train/numerics/fingerprint.h"

namespace muster {
namespace {

// A mistake that nobody catches would look like a crash of the worker, which is then started again
// and again. Other threads' exceptions are left to whoever was there before.
void end_job_for_exceptions() {
  static const auto program = std::this_thread::get_id();
  static const auto before = std::get_terminate();
  std::set_terminate([] {
    if (std::this_thread::get_id() == program && std::current_exception()) {
      std::string what = "an exception of an unknown type";
      try {
        std::rethrow_exception(std::current_exception());
      } catch (const std::exception& e) {
        what = e.what();
      } catch (...) {
        what += ", which is not a std::exception";
      }
      fmt::print(stderr, "muster: the program's own loop ended with: {}\n", what);
      std::fflush(stderr);
      ::_exit(static_cast<int>(ErrorKind::kJob));
    }
    if (before != nullptr) before();
    std::abort();
  });
}

}  // namespace

void Lane::backward(const torch::Tensor& loss) {
  require(!begun_, "Lane::backward: it was called before for this lane; add the losses instead");
  require(loss.numel() == 1,
          "Lane::backward: the loss must be one number, the mean over the samples");
  begun_ = true;
  const auto scalar = loss.reshape({});
  worker_->take_gradients(true);
  try {
    scalar.backward(torch::full({}, weight_, scalar.options()));
  } catch (...) {
    worker_->take_gradients(false);
    throw;
  }
  worker_->take_gradients(false);
  worker_->lane_finished(scalar.item<double>());
}

struct Loop::Worker {
  explicit Worker(std::vector<std::string> words) : turns(std::move(words)) {}

  config::Job job;
  torch::nn::Module* module = nullptr;
  std::shared_ptr<AdoptedNet> net;
  OwnData data;
  Lane lane;
  std::vector<uint32_t> versions;  // of the module's tensors, when the program got its turn
  LoopWorker turns;                // last: its thread uses the rest

  void begin_lane(const train::OwnLane& wanted) {
    lane.step_ = wanted.step;
    lane.number_ = wanted.lane;
    lane.weight_ = wanted.weight;
    lane.begun_ = false;
    lane.samples_ = torch::empty({static_cast<int64_t>(wanted.samples.size())}, torch::kInt64);
    std::ranges::copy(wanted.samples, lane.samples_.mutable_data_ptr<int64_t>());
    module->train();
  }
  // The module's tensors are views of the job's state. What the program makes of them (detach())
  // may outlive the worker, so their storage owns that memory.
  void own_state() {
    const torch::NoGradGuard no_grad;
    const auto own = [&](const torch::Tensor& tensor) {
      if (auto state = turns.owner_of(tensor.const_data_ptr())) {
        tensor.set_data(torch::from_blob(
            tensor.mutable_data_ptr(), tensor.sizes(), [state](void*) {}, tensor.options()));
      }
    };
    for (const auto& parameter : net->parameters()) own(parameter);
    for (const auto& buffer : net->buffers()) own(buffer);
  }
  // What changes whenever the program changes a parameter. (The worker writes to the memory behind
  // them, which does not.)
  std::vector<uint32_t> versions_now() const {
    std::vector<uint32_t> all;
    for (const auto& parameter : net->parameters()) all.push_back(parameter._version());
    return all;
  }
};

Loop::Loop(int argc, char** argv) {
  train::prepare_process();
  end_job_for_exceptions();
  worker_ = std::make_unique<Worker>(std::vector<std::string>(argv, argv + argc));
  auto job = worker_->turns.find_job();
  // Wrong arguments, --help, or something that needs no job: the worker's business alone.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads yet
  if (!job.ok()) std::exit(worker_->turns.run_here());
  worker_->job = *std::move(job);
  worker_->lane.worker_ = &worker_->turns;
  torch::manual_seed(worker_->job.seed);
  train::use_threads_in_operations(static_cast<int>(worker_->job.threads_per_lane));
}

Loop::~Loop() = default;  // LoopWorker's ends the worker

const config::Job& Loop::job() const { return worker_->job; }

void Loop::adopt(torch::nn::Module& module, const std::vector<torch::Tensor>& data) {
  require(worker_->module == nullptr, "Loop::adopt: a module was adopted before");
  require(!data.empty(), "Loop::adopt: there is no data");
  std::vector<torch::Tensor> tensors;
  for (const auto& tensor : data) {
    require(tensor.dim() > 0 && tensor.size(0) == data[0].size(0),
            "Loop::adopt: all tensors of the data must have one row for each sample");
    tensors.push_back(tensor.contiguous());
  }
  worker_->data.tensors = std::move(tensors);
  adopt(module, static_cast<uint64_t>(data[0].size(0)), "");
}

void Loop::adopt(torch::nn::Module& module, uint64_t samples, const std::string& identity) {
  require(worker_->module == nullptr, "Loop::adopt: a module was adopted before");
  require(samples > 0, "Loop::adopt: there are no samples");
  Worker& worker = *worker_;
  worker.module = &module;
  worker.data.samples = samples;
  worker.data.identity = identity;
  worker.net = std::make_shared<AdoptedNet>(module);
  worker.turns.set_model(worker.net, worker.data);
  if (!worker.turns.trains()) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the worker's threads have ended
    std::exit(worker.turns.run_here());
  }
  worker.turns.start();
  worker.own_state();
}

bool Loop::step() {
  Worker& worker = *worker_;
  require(worker.module != nullptr, "Loop::step: call adopt() first");
  if (!worker.turns.begin_step("Loop::step")) return false;
  require(worker.versions.empty() || worker.versions == worker.versions_now(),
          "Loop::step: the program has changed a parameter of the module; only commit() may");
  return true;
}

Lane* Loop::next_lane() {
  const auto* wanted = worker_->turns.next_lane("Loop::lanes");
  if (wanted == nullptr) return nullptr;
  worker_->begin_lane(*wanted);
  return &worker_->lane;
}

bool Loop::commit() {
  const bool committed = worker_->turns.commit("Loop::commit");
  worker_->versions = worker_->versions_now();
  return committed;
}

int64_t Loop::steps() const { return worker_->turns.steps(); }

void Loop::progress() { worker_->turns.progress(); }

bool Loop::finished() const { return worker_->turns.finished(); }

int Loop::finish() {
  require(worker_->module != nullptr, "Loop::finish: call adopt() first");
  worker_->turns.leave();
  return *worker_->turns.exit_code();
}

}  // namespace muster
