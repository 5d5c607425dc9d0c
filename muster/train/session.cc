#include "muster/train/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "muster/base/check.h"
#include "muster/base/float_mode.h"
#include "muster/base/text.h"
#include "muster/base/thread.h"
#include "muster/config/rounds.h"
#include "muster/config/source.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/image_classes.h"
#include "muster/data/make_order.h"
#include "muster/model/generator_watch.h"
#include "muster/model/row_lookup.h"
#include "muster/optim/schedule.h"
#include "muster/pt2/program.h"
#include "muster/sync/recipe.h"
#include "muster/train/numerics/fingerprint.h"
#include "muster/train/numerics/job_fingerprint.h"
#include "muster/train/rows/sync_rows.h"
#include "muster/train/rows/sync_weights.h"
#include "muster/train/rows/task_rows.h"

namespace muster::train {

namespace {

int64_t steps_of(const data::BatchPlan& batches) {
  return batches.limited() ? static_cast<int64_t>(batches.steps()) : 0;
}

}  // namespace

Session::Session(config::Job job, const Registries& registries)
    : job_(std::move(job)), registries_(registries), setup_(data::setup_of(job_.data)) {
  const DataPlaces& places = registries_.places;
  setup_.store = places.store;
  setup_.files = files_.get();
  if (setup_.indexes.empty()) setup_.indexes = places.indexes;
  setup_.keep_waiting = places.keep_waiting;
  setup_.tell = places.tell;
}

Result<std::unique_ptr<Session>> Session::open(config::Job job, const Registries& registries) {
  if (job.device != "cpu") {
    return Error(ErrorKind::kMachine, "device '{}' is not supported yet; use device: cpu",
                 job.device);
  }
  if (job.sync.strategy == "auto") {
    return Error(ErrorKind::kJob,
                 "sync.strategy auto is for `muster train`, which puts another one in its place; "
                 "name one, which `muster plan` helps to choose");
  }
  std::unique_ptr<Session> session(new Session(std::move(job), registries));
  MUSTER_RETURN_IF_ERROR(session->open_model_file());
  MUSTER_RETURN_IF_ERROR(session->open_data());
  MUSTER_RETURN_IF_ERROR(session->open_rows());
  MUSTER_RETURN_IF_ERROR(session->build_nets());
  return session;
}

// It is kept open only while nets are built: they have copies of what they need, and a file that is
// mapped must not be written meanwhile.
Status Session::open_model_file() {
  const std::string& path = job_.model.file;
  if (path.empty()) return {};
  auto opened = pt2::File::open(path);
  if (!opened.ok()) return std::move(opened).error().context("model.file");
  auto hash = opened->hash().hex();
  if (!model_file_.empty() && hash != model_file_) {
    return Error(ErrorKind::kJob, "model.file: '{}' has changed since this worker read it", path);
  }
  model_file_ = std::move(hash);
  plan_.file = std::make_shared<const pt2::File>(*std::move(opened));
  return {};
}

Status Session::open_data() {
  const bool any_blocks =
      config::is_read_by_blocks(job_.data.train) || config::is_read_by_blocks(job_.data.test);
  // One for both, so that they share connections and what is known of servers.
  if (any_blocks && setup_.store == nullptr) setup_.store = data::open_patient_store();
  MUSTER_TRY(train_, open_source("data.train", job_.data.train));
  plan_.models = &registries_.models;
  plan_.options = job_.model;
  plan_.schema = train_->schema();
  plan_.seed = job_.seed;
  plan_.bf16 = job_.precision == "bf16";
  plan_.own = registries_.own_lanes;
  plan_.memory = registries_.memory;
  if (plan_.own == nullptr) {
    MUSTER_TRY(plan_.loss,
               model::find_loss(registries_.models, job_.model, plan_.schema, plan_.file.get()));
  } else {
    MUSTER_RETURN_IF_ERROR(check_own_loop());
  }

  if (plan_.loss.metrics.size() >= kMostMetrics) {
    return Error(ErrorKind::kJob, "the loss '{}' has {} metrics; at most {} are possible",
                 job_.model.loss, plan_.loss.metrics.size(), kMostMetrics - 1);
  }

  loading_.seed = job_.seed;
  loading_.memory = plan_.memory;
  loading_.batches.batch = static_cast<uint64_t>(job_.batch);
  loading_.batches.lanes = static_cast<uint64_t>(job_.lanes);
  if (job_.passes > 0) {
    const double samples = job_.passes * static_cast<double>(train_->size());
    loading_.batches.total = static_cast<uint64_t>(std::llround(samples));
  }
  if (job_.steps > 0) loading_.batches.most_steps = static_cast<uint64_t>(job_.steps);
  MUSTER_TRY(loading_.order, data::make_order(job_.data, *train_, job_.seed, loading_.batches));
  MUSTER_RETURN_IF_ERROR(optim::check_schedule(job_.optimizer, steps_of(loading_.batches)));
  loading_.finds_damage = job_.data.on_damage == "replace";
  if (loading_.finds_damage && train_->blocks() == nullptr) {
    return Error(ErrorKind::kJob,
                 "data.on_damage replace is for data that is read by blocks, and data.train is "
                 "not; remove it");
  }
  loading_.threads = static_cast<int>(job_.data.loader.threads);
  loading_.ahead = static_cast<uint64_t>(job_.data.loader.ahead);
  // Replicas are computed one after the other.
  if (sync::is_periodic(job_.sync.strategy)) {
    loading_.together = static_cast<uint64_t>(sync::lanes_per_unit(job_));
  }
  MUSTER_TRY(loading_.augment, data::Augmenter::make(job_.data.augment, plan_.schema));
  return {};
}

Result<std::unique_ptr<data::Dataset>> Session::open_source(
    const std::string& key, const config::SourceOptions& source) const {
  auto setup = setup_;
  if (key == "data.test") {
    setup.longest_block = 0;  // read from front to back, not mixed
    const auto& indexes = registries_.places.test_indexes;
    if (indexes) setup.indexes = *indexes;
  }
  auto opened = registries_.data.open(source, setup);
  if (!opened.ok()) return std::move(opened).error().context("{}", key);
  return opened;
}

// What the program's loop does itself.
Status Session::check_own_loop() const {
  const auto wrong = [](std::string_view key, std::string_view what) {
    return Error(ErrorKind::kJob, "{}: this worker is a program with its own loop; {}", key, what);
  };
  if (job_.model.use != kOwnLoop) return wrong("model", "write `model: { use: own-loop }`");
  if (job_.data.train.format != kOwnLoop) return wrong("data.train.format", "write `own-loop`");
  if (has_test()) return wrong("data.test", "it evaluates the model itself; leave this out");
  if (sync::has_rounds(job_.sync.strategy)) {
    return wrong("sync.strategy", "it needs lockstep; leave this out");
  }
  if (job_.precision != "fp32") return wrong("precision", "it chooses its own; leave this out");
  return {};
}

Status Session::open_rows() {
  if (!config::has_tables(job_)) return {};
  MUSTER_TRY(auto tables, registries_.tables ? registries_.tables(job_)
                                             : open_tables(job_, registries_.servers));
  const auto initial = [this] {
    return arena_->weights().first(arena_->layout().block_elements());
  };
  if (sync::is_asynchronous(job_.sync)) {
    auto tasks = std::make_unique<TaskRows>(job_, std::move(tables));
    tasks->set_initial(initial);
    tasks_ = tasks.get();
    rows_ = std::move(tasks);
  } else if (sync::is_on_servers(job_.sync.strategy)) {
    auto weights = std::make_unique<SyncWeights>(job_, std::move(tables));
    weights->set_initial(initial);
    weights_ = weights.get();
    rows_ = std::move(weights);
  } else {
    rows_ = std::make_unique<SyncRows>(std::move(tables));
  }
  rows_->set_learning_rate([this](int64_t step) {
    auto unit = job_.optimizer;
    unit.lr = 1;  // the schedule alone
    return job_.tables.lr * optim::learning_rate(unit, step, total_steps());
  });
  if (job_.tables.width > 0) plan_.rows = rows_.get();
  return {};
}

Status Session::build_nets() {
  flush_subnormals();  // initial weights are numbers of the job, too

  MUSTER_TRY(optimizer_, optim::make_optimizer(job_.optimizer));
  MUSTER_TRY(auto first, build_first_net(plan_));
  std::vector<std::string> matrices;
  for (const TensorSpec& tensor : first.tensors) {
    const auto& info = tensor.info;
    if (info.role == optim::Role::kWeight && info.dims >= 2 && !info.lookup) {
      matrices.push_back(info.name);
    }
  }
  MUSTER_RETURN_IF_ERROR(check_patterns("optimizer.adamw_on", job_.optimizer.adamw_on, matrices));

  arena_ = std::make_unique<Arena>(first.tensors, state_names(job_, *optimizer_), *plan_.memory);
  // The state of the job changes only when a round is committed.
  const bool apart = sync::has_rounds(job_.sync.strategy) && weights_ == nullptr;
  if (sync::is_on_servers(job_.sync.strategy) &&
      arena_->first_statistic() < arena_->tensors().size()) {
    return Error(ErrorKind::kJob,
                 "sync.strategy server cannot train running statistics such as '{}'; use a model "
                 "without batch normalization, or another strategy",
                 arena_->tensors()[arena_->first_statistic()].info.name);
  }
  if (apart) {
    work_ =
        std::make_unique<Arena>(first.tensors, work_state_names(job_, *optimizer_), *plan_.memory);
  }
  Arena& computing = apart ? *work_ : *arena_;
  auditor_ = std::make_unique<Auditor>(job_, *arena_);
  const bool few = !apart && job_.sync.bits < exact::SumFormat::kAllBits;
  sum_ = make_sum(few);
  sum_->set_rounding({.stochastic = job_.sync.rounding == "stochastic", .seed = job_.seed});
  if (few) sum_->set_groups(static_cast<int>(sync::units_of(job_)));
  const int wanted = job_.threads > 0 ? static_cast<int>(job_.threads) : usable_cores();
  const int per_lane = static_cast<int>(job_.threads_per_lane);
  // Bits depend on the order of sums inside an operation, so on how many threads share it: always
  // threads_per_lane, even on a machine that has fewer cores.
  const int members = plan_.own != nullptr
                          ? 1  // the program has one module and one thread
                          : std::clamp(wanted / per_lane, 1, static_cast<int>(job_.lanes));
  team_ = std::make_unique<Team>(members, per_lane);
  for (int member = 0; member < members; ++member) {
    // Lanes whose gradients are pushed one by one must not be added up here.
    const bool own_sum = weights_ != nullptr && member > 0;
    if (own_sum) more_sums_.push_back(make_sum(false));
    GradientSum* const sum = own_sum ? more_sums_.back().get() : sum_.get();
    MUSTER_TRY(auto net, LaneNet::create(plan_, computing, sum, member == 0 ? &first : nullptr));
    nets_.push_back(std::move(net));
  }
  plan_.file.reset();
  // The first net brought the initial weights.
  if (apart) std::ranges::copy(work_->weights(), arena_->weights().begin());
  lane_runner_ =
      std::make_unique<LaneRunner>(*team_, nets_, plan_.schema, static_cast<int>(job_.lanes));
  MUSTER_TRY(strategy_, make_strategy(job_, parts()));
  if (plan_.own != nullptr) initial_.assign(arena_->weights().begin(), arena_->weights().end());
  return {};
}

std::unique_ptr<GradientSum> Session::make_sum(bool few) const {
  return std::make_unique<GradientSum>(
      arena_->layout(), static_cast<int>(job_.lanes),
      bucket_bytes(job_.sync.bucket, few ? job_.sync.bits : exact::SumFormat::kAllBits),
      arena_->first_statistic(), *plan_.memory);
}

StrategyParts Session::parts() {
  std::vector<GradientSum*> lane_sums;
  if (weights_ != nullptr) lane_sums.push_back(sum_.get());
  for (const auto& sum : more_sums_) lane_sums.push_back(sum.get());
  return {.arena = arena_.get(),
          .sum = sum_.get(),
          .team = team_.get(),
          .lanes = lane_runner_.get(),
          .optimizer = optimizer_.get(),
          .auditor = auditor_.get(),
          .memory = plan_.memory,
          .rows = rows_.get(),
          .tasks = tasks_,
          .weights = weights_,
          .work = work_.get(),
          .lane_sums = std::move(lane_sums)};
}

// What was used is in the state, so it says where the next step begins.
data::BatchPlan Session::batches() const {
  data::BatchPlan batches = loading_.batches;
  batches.first_step = static_cast<uint64_t>(arena_->counters().step);
  batches.first_sample = arena_->counters().samples;
  return batches;
}

int64_t Session::total_steps() const { return steps_of(batches()); }

void Session::start_loader() {
  std::vector<int> lanes(static_cast<size_t>(job_.lanes));
  std::iota(lanes.begin(), lanes.end(), 0);  // one worker has them all
  loading_.batches = batches();
  if (plan_.rows != nullptr && plan_.schema.has_ids && rows_->wants_prefetch()) {
    loading_.filled = [this](const data::Batch& batch) {
      const std::span records(reinterpret_cast<const int64_t*>(batch.inputs.data()),
                              batch.count * plan_.schema.input_elements());
      rows_->prefetch(static_cast<int64_t>(batch.step), batch.lane,
                      model::row_keys(plan_.schema, records));
    };
  }
  loading_.keep_waiting = [this] { return wait_for_data(); };
  loader_ = std::make_unique<data::Loader>(*train_, loading_, lanes, loading_.batches.first_step);
  lane_runner_->set_loader(loader_.get(), &loading_.batches);
}

void Session::set_on_waiting(std::function<bool(const std::string& what)> on_waiting) {
  const std::lock_guard lock(waiting_mutex_);
  on_waiting_ = std::move(on_waiting);
}

bool Session::has_lost_group() const {
  return (group_ != nullptr && group_->failed()) || (site_ != nullptr && site_->failed());
}

// From any thread of the team, in a step or an evaluation.
bool Session::wait_for_data() const {
  // Else the others would wait for this worker in the next roster: no collective is under way here
  // that could fail, and waiting for data counts as progress.
  if (has_lost_group()) return false;
  if (!lane_runner_->keep_waiting()) return false;
  const std::lock_guard lock(waiting_mutex_);
  if (!on_waiting_) return true;
  std::string what = loader_ != nullptr ? loader_->waiting() : "";
  // Of test data, in an evaluation.
  if (what.empty() && test_ != nullptr && test_->fetcher() != nullptr) {
    what = test_->fetcher()->waiting();
  }
  if (what.empty()) what = "waiting for data";  // a batch that another thread fills
  return on_waiting_(what);
}

void Session::set_vitals(const Vitals* vitals) {
  vitals_ = vitals != nullptr ? vitals : &kNoVitals;
  auditor_->set_vitals(vitals_);
  strategy_->set_vitals(vitals_);
  if (plan_.own != nullptr) plan_.own->progress = vitals_->progress;
  if (rows_ != nullptr) rows_->set_progress(vitals_->progress);
}

Status Session::reset() {
  const auto bytes = arena_->bytes();
  std::memset(bytes.data(), 0, bytes.size());
  arena_->counters() = Counters{};
  arena_->seal_counters();
  if (plan_.own != nullptr) {
    std::ranges::copy(initial_, arena_->weights().begin());
    return {};
  }
  MUSTER_RETURN_IF_ERROR(open_model_file());
  MUSTER_TRY(const auto first, build_first_net(plan_));
  plan_.file.reset();
  const auto copy = [&](const std::string& name, const torch::Tensor& value) {
    size_t t = 0;
    MUSTER_CHECK(arena_->find(name, &t) != nullptr, "the model has changed");
    std::memcpy(arena_->tensor(t).data(), value.const_data_ptr<float>(),
                arena_->tensor(t).size_bytes());
  };
  for (const auto& item : first.net->named_parameters()) copy(item.key(), item.value());
  for (const auto& item : model::collect_statistics(*first.net)) copy(item.name, item.running);
  return {};
}

void Session::assign(const std::vector<std::vector<int>>& units, comm::Group& group,
                     Duration timeout, std::vector<int> newcomers, const SiteGroup& site) {
  MUSTER_CHECK(units.size() == static_cast<size_t>(group.size()), "units for each member");
  strategy_->assign(units[static_cast<size_t>(group.rank())], &group, timeout);
  if (site.group != nullptr) {
    strategy_->join_site(*site.group, units[static_cast<size_t>(site.leader)]);
  }

  std::vector<std::vector<int>> lanes;
  lanes.reserve(units.size());
  for (const auto& theirs : units) lanes.push_back(sync::lanes_of(job_, theirs));
  auditor_->assign(std::move(lanes), &group, {.timeout = timeout}, std::move(newcomers));
  if (loader_ == nullptr) start_loader();
  loading_.batches = batches();
  loader_->restart(loading_.batches, strategy_->lanes());
  group_ = &group;
  site_ = site.group;
  shares_.clear();
  for (const auto& theirs : units) shares_.push_back(theirs.size());
  timeout_ = timeout;
}

Result<StepReport> Session::step(const std::function<CommitFlags()>& flags) {
  if (!tried_) {
    MUSTER_RETURN_IF_ERROR(try_smallest_lanes());
    tried_ = true;
  }
  if (loader_ == nullptr) start_loader();
  auto report = strategy_->run(flags);
  if (!report.ok() && report.error().kind() == ErrorKind::kInterrupted && has_lost_group()) {
    return Error(ErrorKind::kInternal, "the group failed while this worker waited for data");
  }
  return report;
}

// Labels of a test set may not use every class; the model has as many as the training data.
config::SourceOptions Session::test_source() const {
  auto source = job_.data.test;
  if (source.classes == 0) source.classes = plan_.schema.classes;
  return source;
}

Result<std::unique_ptr<data::Dataset>> Session::open_test() const {
  auto source = test_source();
  MUSTER_RETURN_IF_ERROR(data::number_classes_alike(job_.data.train, source));
  MUSTER_TRY(auto opened, open_source("data.test", source));
  MUSTER_RETURN_IF_ERROR(data::check_compatible(plan_.schema, opened->schema()));
  return opened;
}

Result<const data::Dataset*> Session::test_data() {
  MUSTER_RETURN_IF_ERROR(finish_hashing());
  if (test_ == nullptr) {
    MUSTER_TRY(test_, open_test());
  }
  return test_.get();
}

Status Session::begin_fingerprint() {
  if (!fingerprint_.model.empty()) return {};
  MUSTER_CHECK(loader_ == nullptr && arena_->counters().step == 0, "the model is still initial");
  // Not by the thread: it may have to be indexed, and who ends that shall not lose steps with it.
  if (has_test() && test_ == nullptr) {
    const auto blocks = registries_.data.block_format(test_source());
    if (!blocks.ok() || *blocks != nullptr) {
      MUSTER_TRY(test_, open_test());
    }
  }
  hashing_ = Thread("hash-data", [this] { hashed_ = hash_data(); });
  const auto samples = static_cast<uint64_t>(job_.batch / job_.lanes);  // of the smallest lane
  if (rows_ != nullptr) rows_->rehearse(true);
  const model::GeneratorWatch generator;
  const auto hash = hash_gradients(*nets_[0], *sum_, *arena_, *train_, samples, *plan_.memory,
                                   setup_.keep_waiting);
  if (rows_ != nullptr) rows_->rehearse(false);
  if (!hash.ok()) {
    MUSTER_RETURN_IF_ERROR(try_smallest_lanes());  // it may know why
    return hash.error();
  }
  MUSTER_RETURN_IF_ERROR(nets_[0]->check_generator(generator));
  fingerprint_.model = hash->hex();
  fingerprint_.model_file = model_file_;
  return {};
}

Result<Session::HashedData> Session::hash_data() const {
  HashedData hashed;
  MUSTER_TRY(const auto train_hash, train_->try_hash());
  hashed.train = train_hash.hex();
  if (!has_test()) return hashed;
  if (test_ == nullptr) {
    MUSTER_TRY(hashed.test_data, open_test());
  }
  const data::Dataset& test = test_ != nullptr ? *test_ : *hashed.test_data;
  MUSTER_TRY(const auto test_hash, test.try_hash());
  hashed.test = test_hash.hex();
  return hashed;
}

Status Session::finish_hashing() {
  hashing_.join();
  if (!hashed_) return {};
  if (!hashed_->ok()) return hashed_->error();
  HashedData& data = hashed_->value();
  fingerprint_.train_data = std::move(data.train);
  fingerprint_.test_data = std::move(data.test);
  if (test_ == nullptr) test_ = std::move(data.test_data);
  hashed_.reset();
  return test_ != nullptr ? check_evaluation(*test_) : Status();
}

Result<JobFingerprint> Session::fingerprint() {
  MUSTER_RETURN_IF_ERROR(finish_hashing());
  // Not at the beginning: only others, and a checkpoint, want to know it.
  if (fingerprint_.kernels.empty() && !fingerprint_.model.empty()) {
    fingerprint_.kernels = take_fingerprint().combined().hex();
  }
  return fingerprint_;
}

std::vector<std::string> Session::fetched() const {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view key, const data::Dataset* dataset) {
    const auto report = dataset != nullptr ? dataset->fetched() : std::nullopt;
    if (!report) return;
    lines.push_back(fmt::format("{}: {} ({}) fetched, {} from the cache on disk, {} waited for",
                                key, counted(report->blocks, "block"),
                                human_bytes(static_cast<double>(report->bytes)),
                                with_commas(report->from_disk), with_commas(report->waited)));
  };
  add("data.train", train_.get());
  add("data.test", test_.get());
  if (lines.empty() || setup_.store == nullptr) return lines;
  const auto counters = setup_.store->counters();
  lines.push_back(fmt::format("store of the data: {} repeated, {} sent twice because of their age",
                              counted(counters.retries, "request"), with_commas(counters.hedges)));
  return lines;
}

std::string Session::cache_problem() const {
  for (const data::Dataset* dataset : {train_.get(), test_.get()}) {
    const auto report = dataset != nullptr ? dataset->fetched() : std::nullopt;
    if (report && !report->cache_problem.empty()) return report->cache_problem;
  }
  return {};
}

std::vector<std::string> Session::replaced_blocks(uint64_t first) const {
  std::vector<std::string> names;
  const auto index = train_->blocks();
  const auto damaged = arena_->counters().replaced.damaged();
  for (uint64_t i = first; index != nullptr && i < damaged.size(); ++i) {
    if (damaged[i] < index->blocks.size()) names.push_back(index->describe(damaged[i]));
  }
  return names;
}

Result<EvalReport> Session::evaluate() {
  MUSTER_TRY(const auto* test, test_data());
  MUSTER_RETURN_IF_ERROR(check_evaluation(*test));
  strategy_->show_weights();
  return train::evaluate(
      *test, plan_, *team_, nets_, job_.eval.batch, job_.eval.samples,
      {group_, shares_, {.timeout = timeout_}, vitals_, [this] { return wait_for_data(); }});
}

void Session::remember(const EvalReport& report) {
  Counters& counters = arena_->counters();
  counters.evaluation.step = counters.step;
  for (size_t i = 0; i < report.values.size(); ++i)
    counters.evaluation.values[i] = report.values[i].second;
  arena_->seal_counters();
  strategy_->forget();
}

StepReport Session::last_step() const {
  const Counters& counters = arena_->counters();
  return {.steps = counters.last.steps,
          .loss = counters.last.loss,
          .samples = counters.last.samples,
          .lr = counters.last.lr,
          .gradient_norm = counters.last.gradient_norm,
          .redone = counters.last.redone != 0,
          .skipped = counters.last.skipped != 0,
          .gradient_bits = counters.last.gradient_bits};
}

EvalReport Session::last_evaluation() const {
  const Counters& counters = arena_->counters();
  EvalReport report;
  if (counters.evaluation.step < 0) return report;
  report.values.emplace_back("loss", counters.evaluation.values[0]);
  for (const auto& metric : plan_.loss.metrics) {
    report.values.emplace_back(metric.name, counters.evaluation.values[report.values.size()]);
  }
  return report;
}

Status Session::try_forward() {
  if (plan_.own != nullptr) return {};
  data::Batch batch;
  batch.memory = plan_.memory;
  MUSTER_RETURN_IF_ERROR(check_lanes());
  // One sample, unless the model's file excludes that.
  const auto batches = this->batches();
  const uint64_t usual = data::fewest_lane_samples(batches, batches.first_step);
  const uint64_t samples = nets_[0]->check_samples(1).ok() ? 1 : usual;
  MUSTER_RETURN_IF_ERROR(
      data::read_range(*train_, 0, std::min(samples, train_->size()), batch, setup_.keep_waiting));
  const model::GeneratorWatch generator;
  MUSTER_TRY(const auto evaluation, nets_[0]->evaluate(batch));
  (void)evaluation;
  MUSTER_RETURN_IF_ERROR(try_smallest_lanes());
  // What has no statistics was not tried.
  if (!nets_[0]->keeps_statistics()) MUSTER_RETURN_IF_ERROR(nets_[0]->try_training(usual));
  return nets_[0]->check_generator(generator);
}

Status Session::check_lanes_of(const data::BatchPlan& batches, uint64_t step) const {
  std::optional<uint64_t> checked;
  for (uint64_t lane = 0; lane < batches.lanes; ++lane) {
    const uint64_t samples = data::lane_slice(batches, step, lane).count;
    if (samples == 0 || samples == checked) continue;
    MUSTER_RETURN_IF_ERROR(nets_[0]->check_samples(samples));
    checked = samples;
  }
  return {};
}

// A program of model.file may be for some numbers of samples only.
Status Session::check_lanes() const {
  if (job_.model.file.empty()) return {};
  const auto batches = this->batches();
  MUSTER_RETURN_IF_ERROR(check_lanes_of(batches, batches.first_step));
  if (!batches.limited() || batches.steps() <= batches.first_step) return {};
  const uint64_t last = batches.steps() - 1;
  auto fits = check_lanes_of(batches, last);
  if (fits.ok()) return {};
  return std::move(fits).error().context(
      "the last step has only {} of the batch's {} samples (leave it out with steps: {})",
      data::step_slice(batches, last).count, batches.batch, last);
}

Status Session::check_evaluation(const data::Dataset& test) const {
  if (job_.model.file.empty() || test.size() == 0) return {};
  const auto limit = static_cast<uint64_t>(job_.eval.samples);
  const uint64_t count = limit > 0 ? std::min(test.size(), limit) : test.size();
  const uint64_t size = std::max<uint64_t>(1, static_cast<uint64_t>(job_.eval.batch));
  for (const uint64_t samples : {std::min(size, count), count % size}) {
    if (samples == 0) continue;
    auto fits = nets_[0]->check_samples(samples);
    if (!fits.ok()) {
      return std::move(fits).error().context(
          "eval.batch: of {} samples, the batches have {} and {}", count, size, count % size);
    }
  }
  return {};
}

// A lane with a single sample is no batch to normalise. Better to say so now than in the last step,
// the only one that may be short, after hours of training.
Status Session::try_smallest_lanes() {
  MUSTER_RETURN_IF_ERROR(check_lanes());
  if (!nets_[0]->keeps_statistics()) return {};
  const auto batches = this->batches();
  const uint64_t usual = data::fewest_lane_samples(batches, batches.first_step);
  // The program computes a usual lane at once, for the fingerprint.
  if (plan_.own == nullptr) {
    if (const auto tried = nets_[0]->try_training(usual); !tried.ok()) {
      return Error(tried.error().kind(), "{}; give the job a larger batch or fewer lanes",
                   tried.error().message());
    }
  }
  if (!batches.limited() || batches.steps() <= batches.first_step) return {};
  const uint64_t last = batches.steps() - 1;
  const uint64_t fewest = data::fewest_lane_samples(batches, last);
  if (fewest >= usual) return {};
  if (plan_.own != nullptr) {
    return try_own_lane(fewest,
                        fmt::format("the last step has only {} of the batch's {} samples; "
                                    "leave it out with steps: {}, or choose another batch "
                                    "or number of lanes",
                                    data::step_slice(batches, last).count, batches.batch, last));
  }
  if (const auto tried = nets_[0]->try_training(fewest); !tried.ok()) {
    return Error(tried.error().kind(),
                 "{}; the last step, with only {} of the batch's {} samples, has too few: leave it "
                 "out with steps: {}",
                 tried.error().message(), data::step_slice(batches, last).count, batches.batch,
                 last);
  }
  return {};
}

// By the program, as a step that is not committed.
Status Session::try_own_lane(uint64_t samples, std::string why) {
  std::vector<uint64_t> first(samples);
  for (uint64_t i = 0; i < samples; ++i) first[i] = i % train_->size();
  data::Batch batch;
  batch.memory = plan_.memory;
  MUSTER_RETURN_IF_ERROR(data::read_samples(*train_, first, batch, setup_.keep_waiting));
  const int64_t step = arena_->counters().step;
  sum_->begin(GradientSum::Mode::kNative, arena_->exponents(), std::array{0});
  plan_.own->trial = std::move(why);
  const auto tried = nets_[0]->train(step, /*lane=*/0, batch, /*weight=*/1);
  plan_.own->trial.clear();
  MUSTER_RETURN_IF_ERROR(nets_[0]->lanes_over(step));
  return tried.ok() ? Status() : tried.error();
}

Result<torch::Tensor> Session::predict(const data::Batch& batch, const data::Schema* schema) {
  strategy_->show_weights();
  return nets_[0]->predict(batch, schema != nullptr ? *schema : plan_.schema);
}

Status Session::for_each_net(size_t count,
                             const std::function<Status(LaneNet& net, size_t i)>& body) {
  strategy_->show_weights();
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::optional<std::pair<size_t, Error>> failure;  // guarded by mutex
  team_->run([&](int member) {
    for (size_t i = next++; i < count; i = next++) {
      auto done = body(*nets_[static_cast<size_t>(member)], i);
      if (done.ok()) continue;
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure || i < failure->first) failure.emplace(i, std::move(done).error());
    }
  });
  if (failure) return std::move(failure->second);
  return {};
}

}  // namespace muster::train
