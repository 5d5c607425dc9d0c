#include "muster/own_loop/loop_worker.h"

#include <stdexcept>
#include <utility>

#include <torch/types.h>
#include <torch/utils.h>

#include "muster/base/random.h"

namespace muster {
namespace {

Error left_early(const std::string& trial) {
  return Error(ErrorKind::kJob, "the program has left its loop before step() returned false{}{}",
               trial.empty() ? "" : ", in a lane that is tried before training: ", trial);
}

}  // namespace

void require(bool good, const char* mistake) {
  if (!good) throw std::logic_error(mistake);
}

LoopWorker::LoopWorker(std::vector<std::string> words) : words_(std::move(words)) {
  for (auto& word : words_) argv_.push_back(word.data());
  argv_.push_back(nullptr);
}

Result<config::Job> LoopWorker::find_job() {
  MUSTER_TRY(auto job, train::job_of_worker(static_cast<int>(words_.size()), argv_.data()));
  seed_ = job.seed;
  return job;
}

int LoopWorker::run_here() {
  return train::worker_main(static_cast<int>(words_.size()), argv_.data(), registries_);
}

void LoopWorker::set_model(std::shared_ptr<model::Net> net, OwnData data) {
  net_ = std::move(net);
  data_ = std::move(data);
  registries_.own_lanes = &lanes_;
  registries_.memory = &memory_;
  lanes_.run = [this](const train::OwnLane& work) { return run_lane(work); };
  lanes_.over = [this](int64_t step) { return lanes_over(step); };
  lanes_.trained = [this](int64_t step, bool to_the_end) {
    const std::lock_guard lock(mutex_);
    steps_ = step;
    finished_ = to_the_end;
  };
  registries_.models.add_model(
      train::kOwnLoop,
      [this](const config::Node&, const data::Schema&,
             const auto&) -> Result<std::shared_ptr<model::Net>> { return net_; });
  registries_.data.add(
      train::kOwnLoop,
      [this](const config::SourceOptions&) -> Result<std::unique_ptr<data::Dataset>> {
        return std::unique_ptr<data::Dataset>(std::make_unique<OwnDataset>(data_));
      });
}

void LoopWorker::start() {
  thread_ = Thread("worker", [this] { end(run_here()); });
  std::unique_lock lock(mutex_);
  wait_for_turn(lock);
}

// ---- The worker's thread.

Result<double> LoopWorker::run_lane(const train::OwnLane& work) {
  std::unique_lock lock(mutex_);
  wanted_ = work;
  steps_ = work.step;
  give_turn_to_program(lock);
  if (abandoned_) return left_early(lanes_.trial);
  if (error_) return *std::exchange(error_, std::nullopt);
  return computed_;
}

Status LoopWorker::lanes_over(int64_t step) {
  std::unique_lock lock(mutex_);
  wanted_.reset();
  steps_ = step;
  give_turn_to_program(lock);
  if (abandoned_) return left_early("");
  return {};
}

void LoopWorker::give_turn_to_program(std::unique_lock<std::mutex>& lock) {
  programs_turn_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !programs_turn_ || abandoned_; });
}

void LoopWorker::end(int code) {
  const std::lock_guard lock(mutex_);
  exit_code_ = code;
  changed_.notify_all();
}

// ---- The program's thread.

// Or until the worker has ended.
void LoopWorker::wait_for_turn(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return programs_turn_ || exit_code_; });
}

void LoopWorker::give_turn_to_worker(std::unique_lock<std::mutex>& lock) {
  programs_turn_ = false;
  changed_.notify_all();
  wait_for_turn(lock);
}

bool LoopWorker::begin_step(const char* caller) {
  require(has_model(), fmt::format("{}: there is no model yet", caller).c_str());
  require(stage_ == Stage::kBetween,
          fmt::format("{}: the last step was not committed", caller).c_str());
  const std::lock_guard lock(mutex_);
  if (exit_code_) return false;
  stage_ = Stage::kLanes;
  return true;
}

const train::OwnLane* LoopWorker::next_lane(const char* caller) {
  require(stage_ == Stage::kLanes, fmt::format("{}: once after each step()", caller).c_str());
  std::unique_lock lock(mutex_);
  if (in_lane_) {
    in_lane_ = false;
    if (loss_) {
      computed_ = *loss_;
    } else {
      error_ = Error(ErrorKind::kJob, "step {}, lane {}: the program has not called backward",
                     wanted_->step, wanted_->lane);
    }
    give_turn_to_worker(lock);
  }
  if (exit_code_ || !wanted_) {
    stage_ = Stage::kComputed;
    return nullptr;
  }
  in_lane_ = true;
  loss_.reset();
  torch::manual_seed(seed_of(*wanted_));  // for dropout and the like
  return &*wanted_;
}

bool LoopWorker::commit(const char* caller) {
  require(stage_ == Stage::kComputed,
          fmt::format("{}: compute all lanes first, with lanes()", caller).c_str());
  stage_ = Stage::kBetween;
  std::unique_lock lock(mutex_);
  const int64_t before = steps_;
  if (!exit_code_) give_turn_to_worker(lock);
  return steps_ > before;
}

uint64_t LoopWorker::seed_of(const train::OwnLane& lane) const {
  return RandomStream(seed_, Purpose::kOwnLoop, static_cast<uint64_t>(lane.step),
                      static_cast<uint64_t>(lane.lane))
      .next_u64();
}

int64_t LoopWorker::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

bool LoopWorker::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void LoopWorker::progress() {
  if (lanes_.progress) lanes_.progress();
}

void LoopWorker::leave() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::optional<int> LoopWorker::exit_code() const {
  const std::lock_guard lock(mutex_);
  return exit_code_;
}

}  // namespace muster
