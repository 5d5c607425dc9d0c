#include "muster/own_loop/loop.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "muster/base/random.h"
#include "muster/base/thread.h"
#include "muster/own_loop/adopted.h"
#include "muster/train/fingerprint.h"
#include "muster/train/worker.h"

namespace muster {
namespace {

constexpr const char* kName = "own-loop";

void require(bool good, const char* mistake) {
  if (!good) throw std::logic_error(mistake);
}

}  // namespace

void Lane::backward(const torch::Tensor& loss) {
  require(!done_, "Lane::backward: it was called before for this lane; add the losses instead");
  require(loss.numel() == 1,
          "Lane::backward: the loss must be one number, the mean over the samples");
  done_ = true;
  loss.backward(torch::full({}, weight_));
  loss_ = loss.item<double>();
}

// The worker of train/ runs on a thread of its own and has the program's thread compute lanes. Only
// one of the two runs at any time, so nothing but the turn is shared.
struct Loop::Worker {
  std::vector<std::string> arguments;
  std::vector<char*> argv;
  config::Job job;
  torch::nn::Module* module = nullptr;
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
  std::optional<int> exit_code;          // the worker has ended

  // The program's thread only.
  enum class Stage { kBetween, kLanes, kComputed } stage = Stage::kBetween;
  bool in_lane = false;  // the program computes `lane`
  Lane lane;

  Thread thread;

  // ---- The worker's thread.

  Result<double> run_lane(const train::OwnLane& work) {
    std::unique_lock lock(mutex);
    wanted = work;
    give_turn_to_program(lock);
    if (abandoned) {
      return Error(ErrorKind::kJob, "the program has left its loop before step() returned false");
    }
    if (error) return *std::exchange(error, std::nullopt);
    return lane.loss_;
  }
  void lanes_over() {
    std::unique_lock lock(mutex);
    wanted.reset();
    give_turn_to_program(lock);
  }
  void give_turn_to_program(std::unique_lock<std::mutex>& lock) {
    programs_turn = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !programs_turn || abandoned; });
  }
  void end(int code) {
    const std::lock_guard lock(mutex);
    exit_code = code;
    changed.notify_all();
  }

  // ---- The program's thread.

  // Whether there is something to do; false: the worker has ended.
  bool wait_for_turn(std::unique_lock<std::mutex>& lock) {
    changed.wait(lock, [&] { return programs_turn || exit_code; });
    return !exit_code;
  }
  bool give_turn_to_worker(std::unique_lock<std::mutex>& lock) {
    programs_turn = false;
    changed.notify_all();
    return wait_for_turn(lock);
  }
  void begin_lane() {
    lane.step_ = wanted->step;
    lane.number_ = wanted->lane;
    lane.weight_ = wanted->weight;
    lane.done_ = false;
    lane.samples_ = torch::empty({static_cast<int64_t>(wanted->samples.size())}, torch::kInt64);
    std::ranges::copy(wanted->samples, lane.samples_.mutable_data_ptr<int64_t>());
    // For dropout and the like.
    torch::manual_seed(RandomStream(job.seed, Purpose::kOwnLoop, static_cast<uint64_t>(lane.step_),
                                    static_cast<uint64_t>(lane.number_))
                           .next_u64());
    module->train();
  }
  void start() {
    registries.own_lanes = &lanes;
    lanes.run = [this](const train::OwnLane& work) { return run_lane(work); };
    lanes.over = [this] { lanes_over(); };
    registries.models.add_model(
        kName,
        [this](const config::Node&, const data::Schema&,
               const auto&) -> Result<std::shared_ptr<model::Net>> {
          return std::shared_ptr<model::Net>(std::make_shared<AdoptedNet>(*module));
        });
    registries.data.add(
        kName, [this](const config::SourceOptions&) -> Result<std::unique_ptr<data::Dataset>> {
          return std::unique_ptr<data::Dataset>(std::make_unique<OwnDataset>(data));
        });
    thread = Thread("worker", [this] {
      end(train::worker_main(static_cast<int>(argv.size()) - 1, argv.data(), registries));
    });
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
  for (int i = 0; i < argc; ++i) worker_->arguments.emplace_back(argv[i]);
  for (auto& argument : worker_->arguments) worker_->argv.push_back(argument.data());
  worker_->argv.push_back(nullptr);
  // If there is none, the worker says so and ends; until then the defaults do.
  auto job = train::job_of_worker(argc, argv);
  if (job.ok()) worker_->job = *std::move(job);
  torch::manual_seed(worker_->job.seed);
  at::set_num_threads(static_cast<int>(worker_->job.threads_per_lane));
}

Loop::~Loop() { worker_->leave(); }

const config::Job& Loop::job() const { return worker_->job; }

void Loop::adopt(torch::nn::Module& module, const std::vector<torch::Tensor>& data) {
  require(!data.empty(), "Loop::adopt: there is no data");
  for (const auto& tensor : data) {
    require(tensor.dim() > 0 && tensor.size(0) == data[0].size(0),
            "Loop::adopt: all tensors of the data must have one row for each sample");
    worker_->data.tensors.push_back(tensor.contiguous());
  }
  adopt(module, static_cast<uint64_t>(data[0].size(0)), "");
}

void Loop::adopt(torch::nn::Module& module, uint64_t samples, const std::string& identity) {
  require(worker_->module == nullptr, "Loop::adopt: a module was adopted before");
  require(samples > 0, "Loop::adopt: there are no samples");
  worker_->module = &module;
  worker_->data.samples = samples;
  worker_->data.identity = identity;
  worker_->start();
}

bool Loop::step() {
  require(worker_->module != nullptr, "Loop::step: call adopt() first");
  require(worker_->stage == Worker::Stage::kBetween, "Loop::step: the last step has no commit()");
  std::unique_lock lock(worker_->mutex);
  if (!worker_->wait_for_turn(lock)) return false;
  worker_->stage = Worker::Stage::kLanes;
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

void Loop::commit() {
  require(worker_->stage == Worker::Stage::kComputed,
          "Loop::commit: compute all lanes first, with lanes()");
  worker_->stage = Worker::Stage::kBetween;
  std::unique_lock lock(worker_->mutex);
  if (!worker_->exit_code) worker_->give_turn_to_worker(lock);
}

int Loop::finish() {
  require(worker_->module != nullptr, "Loop::finish: call adopt() first");
  worker_->leave();
  return *worker_->exit_code;
}

}  // namespace muster
