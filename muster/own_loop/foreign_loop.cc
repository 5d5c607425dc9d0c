#include "muster/own_loop/foreign_loop.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>
#include <torch/nn/modules/embedding.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "muster/base/text.h"
#include "muster/config/load.h"
#include "muster/config/table.h"
#include "muster/own_loop/loop_worker.h"
#include "muster/track/run_directory.h"
#include "muster/track/run_events.h"
#include "muster/track/start_script.h"
#include "muster/train/numerics/fingerprint.h"

namespace muster {
namespace {

torch::Tensor copy_of(const float* values, const std::vector<int64_t>& shape) {
  return torch::from_blob(const_cast<float*>(values), shape).clone();
}

// The statistics of a module of the shadow, which compute nothing.
class HasStatistics : public model::KeepsStatistics {
 public:
  void keep(const model::Statistic& statistic) { kept_.push_back(statistic); }
  std::vector<model::Statistic> statistics() override { return kept_; }

 private:
  std::vector<model::Statistic> kept_;
};

class StatisticsLevel final : public torch::nn::Module, public HasStatistics {};

// Of one that is an embedding, for model::names_of_embeddings().
class EmbeddingLevel final : public torch::nn::EmbeddingImpl {
 public:
  explicit EmbeddingLevel(const torch::Tensor& weight)
      : EmbeddingImpl(torch::nn::EmbeddingOptions(weight.size(0), weight.size(1))._weight(weight)) {
  }
};

// A name, cut before its last part: ("layer1.0", "weight").
std::pair<std::string, std::string> cut(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// The shadow of the program's module: its names, with tensors of our own. train/ makes their memory
// that of the job, and hooks that take gradients from them.
class ShadowNet final : public model::Net, public HasStatistics {
 public:
  explicit ShadowNet(const ForeignModel& model) {
    for (const auto& statistic : model.statistics)
      has_statistics_[cut(statistic.name).first] = true;
    for (const auto& parameter : model.parameters) add(parameter);
    for (const auto& statistic : model.statistics) add(statistic);
  }
  torch::Tensor forward(const torch::Tensor&) override {
    TORCH_CHECK(false, "this model is run by its program's own loop, and cannot be run without it");
  }
  bool generator_is_seeded() const override { return true; }

  size_t parameter_count() const { return parameters_.size(); }
  const torch::Tensor& parameter(size_t index) const { return parameters_.at(index); }
  const model::Statistic& statistic(size_t index) const { return statistics_.at(index); }

 private:
  void add(const ForeignModel::Parameter& parameter) {
    const auto value = copy_of(parameter.initial, parameter.shape);
    const auto [level, name] = cut(parameter.name);
    if (parameter.is_embedding && name == "weight" && value.dim() == 2 && !level.empty() &&
        !levels_.contains(level)) {
      const auto [above, last] = cut(level);
      const auto embedding = std::make_shared<EmbeddingLevel>(value);
      this->level(above)->register_module(last, embedding);
      levels_[level] = embedding.get();
      embedding->weight.requires_grad_(parameter.trains);
      parameters_.push_back(embedding->weight);
      return;
    }
    parameters_.push_back(this->level(level)->register_parameter(name, value, parameter.trains));
  }
  void add(const ForeignModel::Statistic& foreign) {
    const auto [level, name] = cut(foreign.name);
    model::Statistic statistic = {.name = name,
                                  .running = copy_of(foreign.initial, foreign.shape),
                                  .latest = torch::zeros(foreign.shape),
                                  .momentum = foreign.momentum};
    torch::nn::Module* const module = this->level(level);
    auto* place = dynamic_cast<HasStatistics*>(module);
    require(place != nullptr, "ForeignLoop: a module and its statistics have different names");
    module->register_buffer(statistic.name, statistic.running);
    place->keep(statistic);
    statistics_.push_back(std::move(statistic));
  }
  // The module of this name, made if it is not there.
  torch::nn::Module* level(const std::string& name) {
    if (name.empty()) return this;
    if (const auto known = levels_.find(name); known != levels_.end()) return known->second;
    const auto [above, last] = cut(name);
    std::shared_ptr<torch::nn::Module> made;
    if (has_statistics_.contains(name)) {
      made = std::make_shared<StatisticsLevel>();
    } else {
      made = std::make_shared<torch::nn::Module>();
    }
    level(above)->register_module(last, made);
    levels_[name] = made.get();
    return made.get();
  }

  std::map<std::string, bool> has_statistics_;
  std::map<std::string, torch::nn::Module*> levels_;
  std::vector<torch::Tensor> parameters_;
  std::vector<model::Statistic> statistics_;
};

OwnData own_data(const ForeignData& data) {
  OwnData own = {.samples = data.samples, .identity = data.identity, .tensors = {}};
  for (const auto& bytes : data.contents) {
    own.tensors.push_back(torch::from_blob(const_cast<std::byte*>(bytes.data()),
                                           {static_cast<int64_t>(bytes.size())}, torch::kUInt8));
  }
  return own;
}

[[noreturn]] void raise(const Error& error) {
  throw ForeignError(static_cast<int>(error.kind()), error.message());
}

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return *std::move(result);
}

constexpr int kSignals = 128;  // exit codes above are of signals

void note_event(const std::string& run_directory, const nlohmann::ordered_json& event) {
  const auto files = posix_file_system();
  const SystemClock clock;
  const auto run = track::RunDirectory::open(*files, run_directory);
  if (!run.ok()) return;
  const auto events = track::RunEventLog::open(*files, run->events_file(), clock);
  if (events.ok()) (*events)->write(event);
}

void ok_or_throw(const Status& status) {
  if (!status.ok()) raise(status.error());
}

}  // namespace

struct ForeignLoop::Parts {
  Parts(std::vector<std::string> words, const ForeignModel& model)
      : net(std::make_shared<ShadowNet>(model)), worker(std::move(words)) {}

  std::shared_ptr<ShadowNet> net;
  std::optional<train::OwnLane> lane;  // that is computed
  bool in_backward = false;
  bool had_backward = false;  // this lane
  std::vector<bool> given;    // the parameters whose gradients this backward pass has brought
  LoopWorker worker;          // last: its thread uses the net
};

ForeignLoop::ForeignLoop(std::vector<std::string> words, const ForeignModel& model,
                         const ForeignData& data, bool resumable)
    : parts_(std::make_unique<Parts>(std::move(words), model)) {
  require(data.samples > 0, "ForeignLoop: there are no samples");
  require(parts_->worker.trains(), "ForeignLoop: these words do not ask for training");
  value_or_throw(parts_->worker.find_job());
  parts_->worker.set_model(parts_->net, own_data(data));
  parts_->worker.set_resumable(resumable);
  parts_->worker.start();
}

ForeignLoop::~ForeignLoop() = default;

float* ForeignLoop::parameter(size_t index) {
  return parts_->net->parameter(index).mutable_data_ptr<float>();
}

float* ForeignLoop::running(size_t index) {
  return parts_->net->statistic(index).running.mutable_data_ptr<float>();
}

float* ForeignLoop::latest(size_t index) {
  return parts_->net->statistic(index).latest.mutable_data_ptr<float>();
}

// What is not in the job's state is in tensors of the net.
std::shared_ptr<const void> ForeignLoop::owner_of(const float* values) const {
  if (auto state = parts_->worker.owner_of(values)) return state;
  return parts_->net;
}

bool ForeignLoop::step() { return parts_->worker.begin_step("step()"); }

std::optional<ForeignLoop::Lane> ForeignLoop::next_lane() {
  require(!parts_->in_backward, "next_lane(): backward has not ended");
  const auto* wanted = parts_->worker.next_lane("next_lane()");
  parts_->lane.reset();
  parts_->had_backward = false;
  if (wanted == nullptr) return std::nullopt;
  parts_->lane = *wanted;
  return Lane{.step = wanted->step,
              .number = wanted->lane,
              .samples = {wanted->samples.begin(), wanted->samples.end()},
              .weight = wanted->weight,
              .seed = parts_->worker.seed_of(*wanted),
              .trial = parts_->worker.trial()};
}

void ForeignLoop::begin_backward() {
  require(parts_->lane.has_value(), "backward: no lane is being computed");
  require(!parts_->in_backward, "backward: it is already under way");
  require(!parts_->had_backward, "backward: once for each lane; add up its losses before");
  parts_->in_backward = true;
  parts_->had_backward = true;
  parts_->given.assign(parts_->net->parameter_count(), false);
  parts_->worker.take_gradients(true);
}

void ForeignLoop::gradient(size_t index, const float* values) {
  require(parts_->in_backward, "gradient(): only during the backward pass of a lane");
  const auto& parameter = parts_->net->parameter(index);
  require(parameter.requires_grad(), "gradient(): this parameter is not trained");
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  require(hook != nullptr, "gradient(): training is over");
  require(!parts_->given.at(index),
          "gradient(): twice for one parameter in one backward pass; if torch.utils.checkpoint is "
          "used, call it with use_reentrant=False");
  parts_->given.at(index) = true;
  parameter.mutable_grad() = torch::from_blob(const_cast<float*>(values), parameter.sizes());
  (*hook)(parameter);
}

void ForeignLoop::end_backward(double mean_loss) {
  require(parts_->in_backward, "end_backward(): begin_backward() comes first");
  abandon_backward();
  parts_->worker.lane_finished(mean_loss);
}

void ForeignLoop::abandon_backward() {
  parts_->in_backward = false;
  parts_->worker.take_gradients(false);
}

bool ForeignLoop::commit() { return parts_->worker.commit("commit()"); }

int64_t ForeignLoop::steps() const { return parts_->worker.steps(); }
void ForeignLoop::progress() { parts_->worker.progress(); }
void ForeignLoop::leave() { parts_->worker.leave(); }
bool ForeignLoop::finished() const { return parts_->worker.finished(); }
std::optional<int> ForeignLoop::exit_code() const { return parts_->worker.exit_code(); }

ForeignSettings foreign_settings(std::vector<std::string> words) {
  const auto job = value_or_throw(LoopWorker(std::move(words)).find_job());
  return {.seed = job.seed, .threads_per_lane = static_cast<int>(job.threads_per_lane)};
}

void prepare_foreign_loop(uint64_t seed, int threads_per_lane) {
  train::prepare_process();
  torch::manual_seed(seed);
  train::use_threads_in_operations(threads_per_lane);
}

std::string foreign_numerics() { return train::take_fingerprint().combined().hex(); }

std::string make_own_run(const std::string& job, const std::string& name,
                         const std::vector<std::string>& sets, const std::string& run_directory,
                         const std::vector<std::string>& start) {
  const auto files = posix_file_system();
  auto sources = value_or_throw(config::gather_sources(*files, "", sets));
  sources.other_variables.insert(sources.other_variables.end(), {"MUSTER_PYTHON", "MUSTER_WORKER"});
  sources.file_text = job;
  sources.file_name = name;
  sources.base_dir = sources.current_dir;
  const auto loaded = value_or_throw(config::load_job(sources));
  std::string path = run_directory;
  if (path.empty()) {
    const SystemClock clock;
    path =
        value_or_throw(track::RunDirectory::create(*files, loaded.job.runs, loaded.job.name, clock))
            .path();
  } else if (files->exists(path + "/job.yaml")) {
    raise(Error(ErrorKind::kJob, "there is a run in '{}' already; name a new directory{}", path,
                track::find_start_script(path).empty()
                    ? ""
                    : fmt::format(", or go on with it: muster resume {}", path)));
  } else {
    ok_or_throw(files->create_directories(path));
  }
  ok_or_throw(write_file_atomically(*files, path + "/job.yaml", config::resolved_yaml(loaded.job)));
  if (!start.empty()) value_or_throw(track::write_start_script(*files, path, start));
  return path;
}

void note_run_start(const std::string& run_directory, const std::string& event) {
  auto start = nlohmann::ordered_json::parse(event, nullptr, /*allow_exceptions=*/false);
  require(start.is_object(), "note_run_start(): an event is an object of JSON");
  note_event(run_directory, start);
}

void note_run_end(const std::string& run_directory, int exit_code) {
  nlohmann::ordered_json end = {{"event", "end"}, {"finished", exit_code == 0}};
  if (exit_code > kSignals) end["stopped_by"] = exit_code - kSignals;
  const auto files = posix_file_system();
  if (const auto run = track::RunDirectory::open(*files, run_directory); run.ok()) {
    const auto status = run->read_status();
    if (status.state == track::RunState::kFailed) end["reason"] = status.reason;
  }
  note_event(run_directory, end);
}

}  // namespace muster
