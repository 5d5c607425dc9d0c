#include "muster/own_loop/loop.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "muster/base/random.h"
#include "muster/base/thread.h"
#include "muster/own_loop/adopted.h"
#include "muster/train/numerics/fingerprint.h"
#include "muster/train/worker.h"

namespace muster {
namespace {

void require(bool good, const char* mistake) {
  if (!good) throw std::logic_error(mistake);
}

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
  *takes_gradients_ = true;
  try {
    scalar.backward(torch::full({}, weight_, scalar.options()));
  } catch (...) {
    *takes_gradients_ = false;
    throw;
  }
  *takes_gradients_ = false;
  loss_ = scalar.item<double>();
  done_ = true;
}

// The worker of train/ runs on a thread of its own and has the program's thread compute lanes. Only
// one of the two runs at any time, so nothing but the turn is shared.
struct Loop::Worker {
  std::vector<std::string> arguments;
  std::vector<char*> argv;
  config::Job job;
  torch::nn::Module* module = nullptr;
  std::shared_ptr<AdoptedNet> net;
  OwnData data;
  train::OwnLanes lanes;
  train::Registries registries;

  std::mutex mutex;
  std::condition_variable changed;
  // All below: guarded by mutex.
  bool programs_turn = false;
  std::optional<train::OwnLane> wanted;  // the lane to compute; nothing: all are
  std::optional<Error> error;            // of the last lane
  bool abandoned = false;                // the program has left its loop
  int64_t steps = 0;                     // committed
  bool finished = false;                 // training has come to its end
  std::optional<int> exit_code;          // the worker has ended

  // The program's thread only.
  enum class Stage { kBetween, kLanes, kComputed } stage = Stage::kBetween;
  bool in_lane = false;  // the program computes `lane`
  Lane lane;
  std::vector<uint32_t> versions;  // of the module's tensors, when the program got its turn

  Thread thread;

  // ---- The worker's thread.

  static Error left_early() {
    return Error(ErrorKind::kJob, "the program has left its loop before step() returned false");
  }
  Result<double> run_lane(const train::OwnLane& work) {
    std::unique_lock lock(mutex);
    wanted = work;
    steps = work.step;
    give_turn_to_program(lock);
    if (abandoned) return left_early();
    if (error) return *std::exchange(error, std::nullopt);
    return lane.loss_;
  }
  Status lanes_over(int64_t step) {
    std::unique_lock lock(mutex);
    wanted.reset();
    steps = step;
    give_turn_to_program(lock);
    if (abandoned) return left_early();
    return {};
  }
  void give_turn_to_program(std::unique_lock<std::mutex>& lock) {
    programs_turn = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !programs_turn || abandoned; });
  }
  void trained(int64_t step, bool to_the_end) {
    const std::lock_guard lock(mutex);
    steps = step;
    finished = to_the_end;
  }
  void end(int code) {
    const std::lock_guard lock(mutex);
    exit_code = code;
    changed.notify_all();
  }

  // ---- The program's thread.

  // Or until the worker has ended.
  void wait_for_turn(std::unique_lock<std::mutex>& lock) {
    changed.wait(lock, [&] { return programs_turn || exit_code; });
  }
  void give_turn_to_worker(std::unique_lock<std::mutex>& lock) {
    programs_turn = false;
    changed.notify_all();
    wait_for_turn(lock);
  }
  void begin_lane() {
    lane.step_ = wanted->step;
    lane.number_ = wanted->lane;
    lane.weight_ = wanted->weight;
    lane.begun_ = false;
    lane.done_ = false;
    lane.samples_ = torch::empty({static_cast<int64_t>(wanted->samples.size())}, torch::kInt64);
    std::ranges::copy(wanted->samples, lane.samples_.mutable_data_ptr<int64_t>());
    // For dropout and the like.
    torch::manual_seed(RandomStream(job.seed, Purpose::kOwnLoop, static_cast<uint64_t>(lane.step_),
                                    static_cast<uint64_t>(lane.number_))
                           .next_u64());
    module->train();
  }
  // What changes whenever the program changes a parameter. (The worker writes to the memory behind
  // them, which does not.)
  std::vector<uint32_t> versions_now() const {
    std::vector<uint32_t> all;
    for (const auto& parameter : net->parameters()) all.push_back(parameter._version());
    return all;
  }
  void prepare() {
    registries.own_lanes = &lanes;
    lane.takes_gradients_ = &lanes.takes_gradients;
    lanes.run = [this](const train::OwnLane& work) { return run_lane(work); };
    lanes.over = [this](int64_t step) { return lanes_over(step); };
    lanes.trained = [this](int64_t step, bool to_the_end) { trained(step, to_the_end); };
    net = std::make_shared<AdoptedNet>(*module);
    registries.models.add_model(train::kOwnLoop,
                                [this](const config::Node&, const data::Schema&,
                                       const auto&) -> Result<std::shared_ptr<model::Net>> {
                                  return std::shared_ptr<model::Net>(net);
                                });
    registries.data.add(
        train::kOwnLoop,
        [this](const config::SourceOptions&) -> Result<std::unique_ptr<data::Dataset>> {
          return std::unique_ptr<data::Dataset>(std::make_unique<OwnDataset>(data));
        });
  }
  int run_worker() {
    return train::worker_main(static_cast<int>(argv.size()) - 1, argv.data(), registries);
  }
  // Ends the worker, with an error if it is not over yet.
  void leave() {
    {
      const std::lock_guard lock(mutex);
      abandoned = true;
      changed.notify_all();
    }
    thread.join();
  }
};

Loop::Loop(int argc, char** argv) : worker_(std::make_unique<Worker>()) {
  train::prepare_process();
  end_job_for_exceptions();
  for (int i = 0; i < argc; ++i) worker_->arguments.emplace_back(argv[i]);
  for (auto& argument : worker_->arguments) worker_->argv.push_back(argument.data());
  worker_->argv.push_back(nullptr);
  auto job = train::job_of_worker(argc, argv);
  // Wrong arguments, --help, or something that needs no job: the worker's business alone.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads yet
  if (!job.ok()) std::exit(worker_->run_worker());
  worker_->job = *std::move(job);
  torch::manual_seed(worker_->job.seed);
  at::set_num_threads(static_cast<int>(worker_->job.threads_per_lane));
}

Loop::~Loop() { worker_->leave(); }

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
  worker.prepare();
  if (worker.arguments.size() < 2 || worker.arguments[1] != "train") {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the worker's threads have ended
    std::exit(worker.run_worker());
  }
  worker.thread = Thread("worker", [&worker] { worker.end(worker.run_worker()); });
  std::unique_lock lock(worker.mutex);
  worker.wait_for_turn(lock);
}

bool Loop::step() {
  Worker& worker = *worker_;
  require(worker.module != nullptr, "Loop::step: call adopt() first");
  require(worker.stage == Worker::Stage::kBetween, "Loop::step: the last step has no commit()");
  const std::lock_guard lock(worker.mutex);
  if (worker.exit_code) return false;
  require(worker.versions.empty() || worker.versions == worker.versions_now(),
          "Loop::step: the program has changed a parameter of the module; only commit() may");
  worker.stage = Worker::Stage::kLanes;
  return true;
}

Lane* Loop::next_lane() {
  Worker& worker = *worker_;
  require(worker.stage == Worker::Stage::kLanes, "Loop::lanes: once after each step()");
  std::unique_lock lock(worker.mutex);
  if (worker.in_lane) {
    worker.in_lane = false;
    if (!worker.lane.done_) {
      worker.error = Error(ErrorKind::kJob, "step {}, lane {}: the program has not called backward",
                           worker.lane.step_, worker.lane.number_);
    }
    worker.give_turn_to_worker(lock);
  }
  if (worker.exit_code || !worker.wanted) {
    worker.stage = Worker::Stage::kComputed;
    return nullptr;
  }
  worker.in_lane = true;
  worker.begin_lane();
  return &worker.lane;
}

bool Loop::commit() {
  Worker& worker = *worker_;
  require(worker.stage == Worker::Stage::kComputed,
          "Loop::commit: compute all lanes first, with lanes()");
  worker.stage = Worker::Stage::kBetween;
  std::unique_lock lock(worker.mutex);
  const int64_t before = worker.steps;
  if (!worker.exit_code) worker.give_turn_to_worker(lock);
  worker.versions = worker.versions_now();
  return worker.steps > before;
}

int64_t Loop::steps() const {
  const std::lock_guard lock(worker_->mutex);
  return worker_->steps;
}

void Loop::progress() {
  if (worker_->lanes.progress) worker_->lanes.progress();
}

bool Loop::finished() const {
  const std::lock_guard lock(worker_->mutex);
  return worker_->finished;
}

int Loop::finish() {
  require(worker_->module != nullptr, "Loop::finish: call adopt() first");
  worker_->leave();
  return *worker_->exit_code;
}

}  // namespace muster
