#include "muster/train/replay.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"
#include "muster/config/rounds.h"
#include "muster/ps/net/job_setup.h"
#include "muster/train/restorer.h"
#include "muster/train/rows/replay_tables.h"
#include "muster/train/rows/task_rows.h"
#include "muster/train/step/task_runner.h"

namespace muster::train {

Result<Replay> replay(config::Job job, Registries registries, FileSystem& files,
                      std::span<const std::string> shards, int64_t step,
                      const std::function<void(int64_t, int64_t)>& progress) {
  MUSTER_CHECK(config::is_asynchronous(job.sync), "a job that has a record");
  const int64_t pushes = config::pushes_of(job.sync);
  const config::SyncOptions sync = job.sync;
  // The record says which weights each task had.
  if (!config::is_elastic(sync)) job.sync.fetch = 1;

  Replay result;
  result.step = step;
  auto made = std::make_unique<LocalTables>(ps::setup_of(job));
  MUSTER_RETURN_IF_ERROR(made->load(0, shards));
  const std::string bytes = made->record();
  TaskRows saved_rows(job, std::move(made));
  MUSTER_TRY(const auto records, ps::read_records(bytes, pushes));
  result.pushes = static_cast<int64_t>(records.size());
  result.record_bytes = bytes.size();
  if (const int64_t tasks = config::tasks_of(sync, job.lanes, step); result.pushes != tasks) {
    return Error(ErrorKind::kCheckpoint,
                 "the record has {} pushes, and {} steps of {} lanes have {}", result.pushes, step,
                 job.lanes, tasks);
  }
  for (int64_t place = 0; place < result.pushes; ++place) {
    const int64_t staleness = records[static_cast<size_t>(place)].staleness(place / pushes);
    result.most_staleness = std::max(result.most_staleness, staleness);
    result.mean_staleness += static_cast<double>(staleness) / static_cast<double>(result.pushes);
  }

  ReplayTables* tables = nullptr;
  registries.tables = [&](const config::Job& of) -> Result<std::unique_ptr<Tables>> {
    auto made = std::make_unique<ReplayTables>(ps::setup_of(of), result.most_staleness);
    tables = made.get();
    return std::unique_ptr<Tables>(std::move(made));
  };
  MUSTER_TRY(const auto session, Session::open(std::move(job), registries));
  MUSTER_TRY(const size_t loaded, load_initial_weights(*session, files));
  (void)loaded;
  TaskRows& rows = *session->tasks();
  MUSTER_RETURN_IF_ERROR(rows.load({}, 0));
  session->start_loader();
  const auto runner = make_task_runner(session->job(), session->parts());
  runner->take_frozen();
  for (int64_t place = 0; place < result.pushes; ++place) {
    const auto& record = records[static_cast<size_t>(place)];
    const auto ticket = static_cast<uint64_t>(place + 1);
    tables->read_as(record);
    rows.begin_task({ticket, record.task});
    MUSTER_TRY(const auto done, runner->run({ticket, record.task}));
    (void)done;
    const auto placed = placed_of(sync, {ticket, record.staleness(place / pushes)});
    MUSTER_RETURN_IF_ERROR(
        tables->apply(0, {.first = place, .pushes = pushes, .oldest = 0, .placed = {placed}}));
    if (progress) progress(place + 1, result.pushes);
  }

  const auto hash = [&](TaskRows& of) -> Result<std::string> {
    Arena& arena = session->arena();
    MUSTER_RETURN_IF_ERROR(of.read_weights(arena.weights().first(arena.layout().block_elements())));
    MUSTER_TRY(const auto all, of.hash(step));
    return hash_of_all(arena.weights_hash(), all);
  };
  tables->read_now();
  MUSTER_TRY(result.replayed, hash(rows));
  MUSTER_TRY(result.saved, hash(saved_rows));
  return result;
}

}  // namespace muster::train
