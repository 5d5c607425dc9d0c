#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/ckpt/snapshot.h"

#include "tools/muster/commands.h"
#include "tools/muster/export_pt2.h"
#include "tools/muster/export_rows.h"
#include "tools/muster/find_run.h"
#include "tools/muster/out_file.h"

namespace muster::cli {
namespace {

// Read whole and checked against its hashes.
Result<ckpt::Snapshot> load(ckpt::SnapshotStore& store, const std::string& which,
                            const std::string& run, Console& console) {
  if (which == "best") {
    MUSTER_TRY(auto best, store.load_best());
    if (best) return *std::move(best);
    return Error(ErrorKind::kCheckpoint,
                 "no checkpoint of {} was marked as the best; use --checkpoint newest", run);
  }
  if (which == "newest") {
    std::vector<std::string> notes;
    MUSTER_TRY(auto newest, store.load_newest(&notes));
    for (const auto& note : notes) console.warning(note);
    if (newest) return *std::move(newest);
    return Error(ErrorKind::kCheckpoint, "{} has no checkpoint yet", run);
  }
  int64_t step = 0;
  std::from_chars(which.data(), which.data() + which.size(), step);
  MUSTER_TRY(const auto there, store.list());
  for (const auto& snapshot : there) {
    if (snapshot.step == step) return store.load(step);
  }
  std::vector<std::string> steps;
  for (const auto& snapshot : there) steps.push_back(std::to_string(snapshot.step));
  return Error(ErrorKind::kCheckpoint, "{} has no checkpoint of step {}; it has {}", run, step,
               steps.empty() ? "none" : join_words(steps));
}

Status write_model(FileSystem& files, const ckpt::SafetensorsFile& model, const std::string& path) {
  return replace_file(files, path, [&](const std::string& aside) -> Status {
    MUSTER_TRY(const auto written,
               ckpt::write_safetensors(files, aside, model.tensors(), model.metadata()));
    (void)written;
    return {};
  });
}

uint64_t parameters_in(const ckpt::SafetensorsFile& model) {
  uint64_t count = 0;
  for (const auto& tensor : model.tensors()) {
    count += tensor.data.size() / ckpt::dtype_size(tensor.dtype);
  }
  return count;
}

// Nothing: there are none.
Result<std::optional<RowsOfCheckpoint>> find_rows(const ExportArguments& arguments,
                                                  const track::RunDirectory& run,
                                                  const ckpt::Snapshot& snapshot,
                                                  FileSystem& files) {
  std::optional<int64_t> since;
  if (arguments.since >= 0) since = arguments.since;
  MUSTER_TRY(auto rows, rows_of(run, snapshot, since, files));
  if (since && !rows) {
    return Error(ErrorKind::kUsage,
                 "--since: {} has no tables, and every export of it is whole; leave it out",
                 run_name(run));
  }
  if (rows) {
    MUSTER_RETURN_IF_ERROR(check_out_file(files, rows_file(arguments.out), arguments.force));
  }
  return rows;
}

nlohmann::ordered_json to_json(const RowsOfCheckpoint& rows, const std::string& file) {
  nlohmann::ordered_json object = {
      {"file", file}, {"rows", rows.rows.keys.size()}, {"width", rows.width}};
  if (rows.since) {
    object["since"] = *rows.since;
    object["evicted"] = rows.rows.evicted.size();
  }
  return object;
}

std::string sentence(const RowsOfCheckpoint& rows, const std::string& file) {
  if (!rows.since)
    return fmt::format("wrote {}: {} rows", file, with_commas(rows.rows.keys.size()));
  return fmt::format("wrote {}: {} rows that changed since step {}, {} evicted", file,
                     with_commas(rows.rows.keys.size()), *rows.since,
                     with_commas(rows.rows.evicted.size()));
}

}  // namespace

Outcome run(const ExportArguments& arguments, Context& context) {
  MUSTER_TRY(const auto run, find_run(arguments.run, context.files));
  const std::string job_out = arguments.out + ".job.yaml";
  MUSTER_RETURN_IF_ERROR(check_out_file(context.files, arguments.out, arguments.force));
  if (arguments.with_job) {
    MUSTER_RETURN_IF_ERROR(check_out_file(context.files, job_out, arguments.force));
  }
  std::string which = arguments.checkpoint;
  if (which.empty()) {
    MUSTER_TRY(which, default_checkpoint(run, context.files));
  }
  ckpt::SnapshotStore store(context.files, run.checkpoints(), 1, true);
  MUSTER_TRY(const auto snapshot, load(store, which, run_name(run), context.console));
  MUSTER_TRY(const auto rows, find_rows(arguments, run, snapshot, context.files));
  const std::string rows_out = rows_file(arguments.out);
  if (arguments.pt2) {
    MUSTER_RETURN_IF_ERROR(write_pt2(context.files, run, snapshot, arguments.out));
  } else {
    MUSTER_RETURN_IF_ERROR(write_model(context.files, snapshot.model, arguments.out));
  }
  if (rows) MUSTER_RETURN_IF_ERROR(write_rows(context.files, *rows, rows_out));
  if (arguments.with_job) {
    MUSTER_TRY(const auto job, context.files.read(run.job_file()));
    MUSTER_RETURN_IF_ERROR(write_file_atomically(context.files, job_out, job));
  }
  const uint64_t numbers = parameters_in(snapshot.model);
  if (arguments.format == Format::kJson) {
    nlohmann::ordered_json object = {{"file", arguments.out},
                                     {"run", run_name(run)},
                                     {"step", snapshot.step},
                                     {"tensors", snapshot.model.tensors().size()},
                                     {"numbers", numbers}};
    if (rows) object["rows"] = to_json(*rows, rows_out);
    if (arguments.with_job) object["job"] = job_out;
    context.console.line(object.dump());
    return 0;
  }
  context.console.line(fmt::format("wrote {}: {} at step {}, {} tensors, {} numbers", arguments.out,
                                   run_name(run), snapshot.step, snapshot.model.tensors().size(),
                                   with_commas(numbers)));
  if (rows) context.console.line(sentence(*rows, rows_out));
  if (arguments.with_job) context.console.line(fmt::format("wrote {}", job_out));
  return 0;
}

}  // namespace muster::cli
