#include "muster/train/rows/task_rows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "muster/base/check.h"
#include "muster/config/rounds.h"
#include "muster/ps/net/job_setup.h"

namespace muster::train {

namespace {
constexpr int64_t kNoPlace = std::numeric_limits<int64_t>::max();  // of interest
constexpr std::array<uint64_t, 1> kParametersAlone = {TaskRows::kParameters};
}  // namespace

float weight_of(const config::SyncOptions& sync, int64_t staleness) {
  if (sync.late != "scale") return 1;
  return 1 / static_cast<float>(std::max<int64_t>(staleness, 1));
}

ps::PlacedPushes::Placed placed_of(const config::SyncOptions& sync, const ps::Ordered& ordered) {
  const bool compensates = sync.late == "compensate";
  return {.ticket = ordered.ticket,
          .weight = weight_of(sync, ordered.staleness),
          .compensation = compensates ? static_cast<float>(sync.compensation) : 0};
}

TaskRows::TaskRows(const config::Job& job, std::unique_ptr<Tables> tables)
    : RowsBase(std::move(tables)),
      sync_(job.sync),
      lanes_(job.lanes),
      pushes_(config::pushes_of(job.sync)),
      compensates_(job.sync.late == "compensate"),
      weights_(this->tables(), ps::weight_table(job)) {}

Result<uint64_t> TaskRows::open(int64_t first, int64_t end) {
  MUSTER_TRY(const auto before, tables().order(0, kNoPlace, false));
  const uint64_t token = ps::draw_incarnation();
  MUSTER_RETURN_IF_ERROR(tables().push_order(
      era(), ps::order_bytes(ps::OpenRound{.openings = before.openings,
                                           .token = token,
                                           .first = first,
                                           .end = end,
                                           .staleness = sync_.mode == "ssp" ? sync_.staleness : -1,
                                           .pushes = pushes_,
                                           .chain = config::is_elastic(sync_) ? lanes_ : 0})));
  MUSTER_RETURN_IF_ERROR(tables().wait());
  MUSTER_TRY(const auto after, tables().order(0, kNoPlace, false));
  if (after.token == token) return token;
  const bool is_next = first == after.end && after.over();
  if (is_next && after.openings == before.openings) {
    return Error(ErrorKind::kJob,
                 "parameter servers cannot go on with tasks {} to {}: the run was trained with "
                 "another sync.mode or sync.pushes; set them as they were",
                 first, end);
  }
  // Trying again could take the tasks away from a group that has given this worker up.
  note_overtaken();
  return Error(
      ErrorKind::kInternal,
      "tasks {} to {} were to be opened, and parameter servers have those from {} to {}, of "
      "which {} are done",
      first, end, after.first, after.end, after.finished);
}

void TaskRows::enter(uint64_t token, int worker) {
  leave();
  token_ = token;
  worker_ = static_cast<uint64_t>(worker);
}

void TaskRows::leave() {
  token_ = 0;
  view_ = {};
  told_ = 0;
  refused_at_.reset();
  begin_task({});
  uses_ = 0;
}

Status TaskRows::look(bool results) {
  MUSTER_TRY(view_, tables().order(worker_, told_, results));
  if (view_.token != token_) {
    note_overtaken();
    return Error(ErrorKind::kInternal, "another group of workers has gone on with the tasks");
  }
  return {};
}

// Before it reads, a worker tells all shards the places that it knows of, and reads when they are
// there: so it need not wait for somebody who may be lost.
Status TaskRows::tell_places() {
  if (view_.ordered.empty()) return {};
  ps::PlacedPushes placed{
      .first = view_.from, .pushes = pushes_, .oldest = view_.oldest, .placed = {}};
  for (const auto& ordered : view_.ordered) {
    placed.placed.push_back(placed_of(sync_, ordered));
  }
  told_ = view_.places();
  return tables().apply(era(), placed);
}

Result<std::optional<TaskRows::Task>> TaskRows::next(const ps::TaskResult* done) {
  MUSTER_CHECK((done != nullptr) == (task_.ticket != 0), "a result is of a task");
  if (done == nullptr && refused_at_) {
    // Asking again is of no use before another task is finished.
    MUSTER_RETURN_IF_ERROR(look(false));
    if (*refused_at_ == view_.finished) return std::optional<Task>();
  }
  ps::NextTask next{
      .token = token_, .worker = worker_, .done = task_.ticket, .result = {}, .versions = {}};
  if (done != nullptr) {
    next.result = *done;
    next.versions = std::move(versions_);
    // It gets its place when all of it is there.
    MUSTER_RETURN_IF_ERROR(tables().wait());
  }
  MUSTER_RETURN_IF_ERROR(tables().push_order(era(), ps::order_bytes(next)));
  MUSTER_RETURN_IF_ERROR(tables().wait());
  MUSTER_RETURN_IF_ERROR(look(false));
  MUSTER_RETURN_IF_ERROR(tell_places());
  begin_task({view_.ticket, view_.task});
  refused_at_.reset();
  if (view_.ticket != 0) return std::optional(task_);
  refused_at_ = view_.finished;
  return std::optional<Task>();
}

Status TaskRows::cut() {
  return tables().push_order(
      era(), ps::order_bytes(ps::CutRound{.token = token_, .unit = std::lcm(lanes_, pushes_)}));
}

void TaskRows::begin_task(const Task& task) {
  task_ = task;
  versions_.clear();
  read_.clear();
}

Status TaskRows::read_weights(std::span<float> weights) {
  std::vector<int64_t> clocks;
  return weights_.read(kParametersAlone, 0, weights, clocks);
}

Status TaskRows::fetch(std::span<float> weights) {
  if (uses_ == 0) {
    MUSTER_RETURN_IF_ERROR(weights_.read(kParametersAlone, told_ / pushes_, weights, clocks_));
  }
  uses_ = (uses_ + 1) % sync_.fetch;
  versions_.push_back(clocks_);
  return {};
}

Status TaskRows::fetch_vectors(std::span<const uint64_t> vectors, std::span<float> values) {
  return weights_.read(vectors, told_ / pushes_, values, versions_.emplace_back());
}

Status TaskRows::push(std::span<const float> gradient, std::span<const float> read, double lr) {
  return push_vectors(kParametersAlone, gradient, read, lr);
}

Status TaskRows::push_vectors(std::span<const uint64_t> vectors, std::span<const float> gradients,
                              std::span<const float> read, double lr) {
  auto header = header_of(0, 0);
  header.era = era();
  header.lr = lr;
  return weights_.push(header, vectors, gradients, read);
}

Status TaskRows::read_rows(int64_t /*step*/, int /*lane*/, std::span<const uint64_t> keys,
                           float* rows) {
  std::vector<int64_t> clocks;
  MUSTER_RETURN_IF_ERROR(tables().read(kRowTable, keys, told_ / pushes_, rows, clocks));
  // Evaluations have none, and several threads.
  if (task_.ticket == 0) return {};
  versions_.push_back(std::move(clocks));
  if (compensates_) keep_read(keys, rows);
  return {};
}

void TaskRows::keep_read(std::span<const uint64_t> keys, const float* rows) {
  const auto floats = static_cast<size_t>(width());
  for (size_t i = 0; i < keys.size(); ++i) {
    const float* const row = rows + i * floats;
    read_.try_emplace(keys[i], row, row + floats);
  }
}

std::span<const float> TaskRows::with_reads(std::span<const uint64_t> keys,
                                            std::span<const float> gradients) {
  if (!compensates_) return gradients;
  const auto floats = static_cast<size_t>(width());
  with_reads_.clear();
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto gradient = gradients.subspan(i * floats, floats);
    const auto& read = read_.at(keys[i]);
    with_reads_.insert(with_reads_.end(), gradient.begin(), gradient.end());
    with_reads_.insert(with_reads_.end(), read.begin(), read.end());
  }
  return with_reads_;
}

// A task is of one lane, and its ticket says which.
ps::PushHeader TaskRows::header_of(int64_t /*step*/, int /*lane*/) const {
  return {.kind = compensates_ ? ps::PushKind::kStageRead : ps::PushKind::kStage,
          .step = static_cast<int64_t>(task_.ticket)};
}

Result<std::vector<ps::TaskResult>> TaskRows::close(std::span<float> weights) {
  MUSTER_RETURN_IF_ERROR(look(true));
  MUSTER_CHECK(view_.over(), "a round is closed that is not over");
  MUSTER_RETURN_IF_ERROR(tell_places());
  MUSTER_RETURN_IF_ERROR(tables().wait());
  std::vector<int64_t> clocks;
  const int64_t clock = told_ / pushes_;
  MUSTER_RETURN_IF_ERROR(weights_.read(kParametersAlone, clock, weights, clocks));
  if (tables().is_shared() && std::ranges::any_of(clocks, [&](int64_t c) { return c != clock; })) {
    note_overtaken();
    return Error(ErrorKind::kInternal,
                 "parameter servers have gone on: this worker was left behind");
  }
  return std::move(view_.results);
}

int64_t TaskRows::tasks_of(int64_t steps) const { return config::tasks_of(sync_, lanes_, steps); }

// Not while a round is open, nor if a group that was broken has opened one.
Result<bool> TaskRows::is_at(int64_t step) {
  MUSTER_TRY(const auto view, tables().order(0, kNoPlace, false));
  return view.end == tasks_of(step) && view.over();
}

Result<std::vector<std::string>> TaskRows::save(int64_t step) {
  MUSTER_TRY(auto shards, RowsBase::save(step));
  // Somebody who was given up may have opened a round meanwhile.
  MUSTER_TRY(const bool still_there, is_at(step));
  if (step > 0 && !still_there) {
    note_overtaken();
    return Error(ErrorKind::kInternal, "rows after step {} have changed while they were saved",
                 step);
  }
  return shards;
}

Status TaskRows::load(std::vector<std::string> shards, uint64_t era) {
  leave();
  if (shards.empty()) {
    std::vector<uint64_t> vectors = {kParameters};
    if (config::is_elastic(sync_)) {
      for (int replica = 0; replica < lanes_; ++replica) {
        vectors.push_back(replica_weights(replica));
      }
    }
    MUSTER_TRY(shards, weights_.initial_shards(vectors, initial_()));
  }
  return tables().load(era, shards);
}

}  // namespace muster::train
