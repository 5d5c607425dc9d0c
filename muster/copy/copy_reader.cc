#include "muster/copy/copy_reader.h"

#include <algorithm>
#include <utility>

#include "muster/copy/fetcher.h"

namespace muster::copy {
namespace {

// A store speaks of data, or of the machine's credentials. A worker is started again after an error
// of kind kIo, and by then the copy may be whole, or there may be other credentials.
Error as_io(Error error) {
  if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kMachine) return error;
  return Error(ErrorKind::kIo, "{}", error.message());
}

}  // namespace

bool CopyLook::has(const ckpt::SnapshotInfo& checkpoint) const {
  return std::ranges::any_of(
      checkpoints, [&](const CopiedCheckpoint& each) { return is_same(checkpoint, each); });
}

const CopiedCheckpoint* CopyLook::find(int64_t step) const {
  const auto found = std::ranges::find(checkpoints, step, &CopiedCheckpoint::step);
  return found == checkpoints.end() ? nullptr : &*found;
}

CopyReader::CopyReader(std::unique_ptr<store::RetryStore> store, FileSystem& files,
                       CopyOptions options, std::function<void()> progress)
    : store_(std::move(store)),
      files_(files),
      options_([&] {
        options.to = plain_place(options.to);
        return std::move(options);
      }()),
      progress_(std::move(progress)) {}

Result<CopyLook> CopyReader::look() {
  constexpr int kTries = 3;  // what it names may be superseded before it is read
  for (int i = 1;; ++i) {
    auto stored = read_index(*store_, options_.to);
    if (!stored.ok()) {
      return as_io(std::move(stored).error()).context("the copy in '{}'", options_.to);
    }
    stored_ = *std::move(stored);
    MUSTER_TRY(const auto own, read_run_id(files_, options_.run_directory));
    CopyLook look;
    // The copy of another run is an error when it is claimed.
    if (!stored_ || stored_->index.run != own.run) {
      look.lost = !own.writer.empty();
      return look;
    }
    look.exists = true;
    look.current = !options_.is_behind(own, stored_->index.writer);
    look.checkpoints = stored_->index.checkpoints;
    if (look.current) return look;
    auto taken = take_over_rollback(*stored_);
    if (taken.ok()) return look;
    if (i == kTries || taken.error().kind() != ErrorKind::kData) {
      return as_io(std::move(taken).error()).context("the copy in '{}'", options_.to);
    }
  }
}

Status CopyReader::take_over_rollback(const StoredIndex& stored) {
  Fetcher fetcher(*store_, files_, options_.to, stored, {.progress = progress_});
  MUSTER_TRY(const auto theirs, fetcher.rollback());
  MUSTER_TRY(const auto lock, track::lock_for_changes(options_.run_directory));
  ckpt::SnapshotStore local(files_, options_.run_directory + "/checkpoints", options_.keep,
                            options_.keep_best);
  if (theirs.roster != 0) return local.roll_back(theirs);
  // A worker alone has the run for itself, and forgets rollbacks. One that the copy has not heard
  // of yet was found by a later roster than those that have claimed it.
  MUSTER_TRY(const auto own, local.rollback());
  return own.roster < stored.index.roster ? local.finish_rollback() : Status();
}

Status CopyReader::fetch(const CopiedCheckpoint& checkpoint) {
  MUSTER_CHECK(stored_.has_value(), "what is fetched was seen by look()");
  Fetcher fetcher(*store_, files_, options_.to, *stored_, {.progress = progress_});
  ckpt::SnapshotStore local(files_, options_.run_directory + "/checkpoints", options_.keep,
                            options_.keep_best);
  MUSTER_TRY(const auto there, local.list());
  const bool here = std::ranges::any_of(
      there, [&](const ckpt::SnapshotInfo& each) { return is_same(each, checkpoint); });
  if (here) return {};
  MUSTER_RETURN_IF_ERROR(files_.create_directories(local.directory()));
  MUSTER_RETURN_IF_ERROR(files_.remove_all(
      fmt::format("{}/{}", local.directory(), ckpt::snapshot_directory_name(checkpoint.step))));
  auto fetched = fetcher.fetch(checkpoint, options_.run_directory);
  if (fetched.ok()) return fetched;
  const auto kind = fetched.error().kind();
  if (kind != ErrorKind::kCheckpoint && kind != ErrorKind::kData) return fetched;
  // So that the copy can be claimed by a group that continues from an earlier one.
  MUSTER_TRY(auto id, read_run_id(files_, options_.run_directory));
  id.passed_over = std::max(id.passed_over, checkpoint.step);
  MUSTER_RETURN_IF_ERROR(write_run_id(files_, options_.run_directory, id));
  return fetched;
}

}  // namespace muster::copy
