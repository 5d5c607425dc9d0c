#include "muster/train/rows/task_rows.h"

#include <algorithm>
#include <array>
#include <limits>

#include "muster/base/check.h"
#include "muster/config/rounds.h"
#include "muster/ps/net/job_setup.h"
#include "muster/train/rows/local_tables.h"

namespace muster::train {

namespace {
constexpr int64_t kNoPlace = std::numeric_limits<int64_t>::max();  // of interest
constexpr std::array<uint64_t, 1> kParametersAlone = {TaskRows::kParameters};
}  // namespace

float weight_of(const config::SyncOptions& sync, int64_t staleness) {
  if (sync.late != "scale") return 1;
  return 1 / static_cast<float>(std::max<int64_t>(staleness, 1));
}

TaskRows::TaskRows(const config::Job& job, std::unique_ptr<Tables> tables)
    : RowsBase(std::move(tables)),
      sync_(job.sync),
      lanes_(job.lanes),
      pushes_(config::pushes_of(job.sync)),
      table_(ps::weight_table(job)),
      width_(this->tables().setup().tables[table_].width) {}

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
    placed.placed.push_back({ordered.ticket, weight_of(sync_, ordered.staleness)});
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
}

size_t TaskRows::choose_rows(std::span<const uint64_t> vectors, size_t weights) {
  const size_t rows = (weights + width_ - 1) / width_;
  keys_.clear();
  for (const uint64_t vector : vectors) {
    for (size_t row = 0; row < rows; ++row) keys_.push_back(vector * rows + row);
  }
  return rows * width_;
}

Status TaskRows::read_vectors(std::span<const uint64_t> vectors, int64_t clock,
                              std::span<float> values, std::vector<int64_t>& clocks) {
  const size_t size = values.size() / vectors.size();
  const size_t held = choose_rows(vectors, size);
  weights_.resize(vectors.size() * held);
  MUSTER_RETURN_IF_ERROR(tables().read(table_, keys_, clock, weights_.data(), clocks));
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::ranges::copy(std::span(weights_).subspan(i * held, size),
                      values.subspan(i * size).begin());
  }
  return {};
}

Status TaskRows::read_weights(std::span<float> weights) {
  std::vector<int64_t> clocks;
  return read_vectors(kParametersAlone, 0, weights, clocks);
}

Status TaskRows::fetch(std::span<float> weights) {
  if (uses_ == 0) {
    MUSTER_RETURN_IF_ERROR(read_vectors(kParametersAlone, told_ / pushes_, weights, clocks_));
  }
  uses_ = (uses_ + 1) % sync_.fetch;
  versions_.push_back(clocks_);
  return {};
}

Status TaskRows::fetch_vectors(std::span<const uint64_t> vectors, std::span<float> values) {
  return read_vectors(vectors, told_ / pushes_, values, versions_.emplace_back());
}

Status TaskRows::push(std::span<const float> gradient, double lr) {
  return push_vectors(kParametersAlone, gradient, lr);
}

Status TaskRows::push_vectors(std::span<const uint64_t> vectors, std::span<const float> gradients,
                              double lr) {
  const size_t size = gradients.size() / vectors.size();
  const size_t held = choose_rows(vectors, size);
  gradient_.assign(vectors.size() * held, 0.0f);
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::ranges::copy(gradients.subspan(i * size, size),
                      std::span(gradient_).subspan(i * held).begin());
  }
  auto header = header_of(0, 0);
  header.table = table_;
  header.era = era();
  header.lr = lr;
  return tables().push(header, keys_, gradient_);
}

Status TaskRows::read_rows(int64_t /*step*/, int /*lane*/, std::span<const uint64_t> keys,
                           float* rows) {
  std::vector<int64_t> clocks;
  MUSTER_RETURN_IF_ERROR(tables().read(kRowTable, keys, told_ / pushes_, rows, clocks));
  // Evaluations have none, and several threads.
  if (task_.ticket != 0) versions_.push_back(std::move(clocks));
  return {};
}

// A task is of one lane, and its ticket says which.
ps::PushHeader TaskRows::header_of(int64_t /*step*/, int /*lane*/) const {
  return {.kind = ps::PushKind::kStage, .step = static_cast<int64_t>(task_.ticket)};
}

Result<std::vector<ps::TaskResult>> TaskRows::close(std::span<float> weights) {
  MUSTER_RETURN_IF_ERROR(look(true));
  MUSTER_CHECK(view_.over(), "a round is closed that is not over");
  MUSTER_RETURN_IF_ERROR(tell_places());
  MUSTER_RETURN_IF_ERROR(tables().wait());
  std::vector<int64_t> clocks;
  const int64_t clock = told_ / pushes_;
  MUSTER_RETURN_IF_ERROR(read_vectors(kParametersAlone, clock, weights, clocks));
  if (tables().is_shared() && std::ranges::any_of(clocks, [&](int64_t c) { return c != clock; })) {
    note_overtaken();
    return Error(ErrorKind::kInternal,
                 "parameter servers have gone on: this worker was left behind");
  }
  return std::move(view_.results);
}

// What the servers would have after such a beginning, made here.
Result<std::vector<std::string>> TaskRows::initial_shards() {
  LocalTables begin(tables().setup());
  const auto weights = initial_();
  std::vector<uint64_t> vectors = {kParameters};
  if (config::is_elastic(sync_)) {
    for (int replica = 0; replica < lanes_; ++replica) vectors.push_back(replica_weights(replica));
  }
  choose_rows(vectors, weights.size());
  const size_t rows = keys_.size() / vectors.size();
  std::vector<float> row(width_);
  for (size_t i = 0; i < keys_.size(); ++i) {
    const size_t first = i % rows * width_;
    std::ranges::fill(row, 0.0f);
    std::copy_n(&weights[first], std::min(width_, weights.size() - first), row.begin());
    MUSTER_RETURN_IF_ERROR(begin.put(table_, keys_[i], row));
  }
  return begin.save(0);
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
    MUSTER_TRY(shards, initial_shards());
  }
  return tables().load(era, shards);
}

}  // namespace muster::train
