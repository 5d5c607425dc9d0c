#include "muster/train/restorer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "muster/ps/net/job_setup.h"
#include "muster/train/numerics/job_fingerprint.h"
#include "muster/train/state/weights_file.h"

namespace muster::train {
namespace {

// What meta.json has under this key, if it is there and of that kind.
template <typename T>
T meta_value(const ckpt::Snapshot& snapshot, const char* key, T fallback) {
  const auto found = snapshot.meta.find(key);
  if (found == snapshot.meta.end()) return fallback;
  if (std::is_arithmetic_v<T> ? !found->is_number() : !found->is_string()) return fallback;
  return found->get<T>();
}

}  // namespace

Result<std::vector<std::string>> saved_rows(const ckpt::SafetensorsFile& state) {
  std::vector<std::string> shards;
  while (const auto* const shard = state.find(ps::rows_name(shards.size()))) {
    shards.emplace_back(reinterpret_cast<const char*>(shard->data.data()), shard->data.size());
  }
  if (shards.empty()) {
    return Error(ErrorKind::kCheckpoint,
                 "the checkpoint has no rows of tables: it is of a job without `tables`");
  }
  return shards;
}

ckpt::SnapshotStore::Rollback as_stored(const roster::Rollback& rollback) {
  return {rollback.number, static_cast<int64_t>(rollback.step)};
}

Status Restorer::newest() {
  std::vector<std::string> notes;
  MUSTER_TRY(const auto snapshot, recorder_.store().load_newest(&notes));
  for (const auto& note : notes) recorder_.warn(note);
  if (!snapshot) return make_initial();
  log_.info("resuming after step {}", snapshot->step);
  MUSTER_RETURN_IF_ERROR(load(*snapshot));
  return check_weights(*snapshot);
}

// Without the copy, a directory that others share is what it was before there was a copy.
Status Restorer::look_at_copy() {
  auto seen = copy_.reader->look();
  if (seen.ok()) {
    copy_.seen = *std::move(seen);
    return {};
  }
  if (copy_.is_needed || seen.error().kind() == ErrorKind::kInterrupted) {
    return std::move(seen).error();
  }
  recorder_.warn(fmt::format("{}; the newest checkpoint of the run directory is taken instead",
                             seen.error().message()));
  return {};
}

bool Restorer::counts(const ckpt::SnapshotInfo& checkpoint) const {
  if (copy_.reader == nullptr || copy_.seen.current) return true;
  const bool is_left = left_ && left_->contains({checkpoint.step, checkpoint.roster});
  return !is_left || copy_.seen.has(checkpoint);
}

// Only the manifests are read: while a worker looks, its group waits. Whether a checkpoint is whole
// is seen when it is needed, which is rare.
Result<Recovery::Restorable> Restorer::restorable(const Question& question) {
  const bool asks_copy = copy_.reader != nullptr && question.is_first;
  if (asks_copy && question.is_behind) MUSTER_RETURN_IF_ERROR(look_at_copy());
  auto& store = recorder_.store();
  const auto& known = question.known;
  if (question.is_first && known.number != 0) {
    MUSTER_RETURN_IF_ERROR(store.roll_back(as_stored(known)));
  }
  MUSTER_TRY(const auto stored, store.rollback());
  Recovery::Restorable result;
  result.rollback = std::max(known, {stored.roster, static_cast<uint64_t>(stored.step)});
  std::optional<Error> unreadable;
  MUSTER_TRY(const auto snapshots, store.list(&unreadable));
  // Newer than all others perhaps: going on from an older one would be to lose it.
  if (unreadable) return *std::move(unreadable);
  if (!left_) {
    left_.emplace();
    const bool is_behind = copy_.reader != nullptr && !copy_.seen.current;
    for (const auto& snapshot : snapshots) {
      if (is_behind && !copy_.seen.has(snapshot)) left_->emplace(snapshot.step, snapshot.roster);
    }
  }
  const auto offer = [&](int64_t step, uint64_t roster) {
    // The store may not know of the rollback yet.
    if (as_stored(result.rollback).invalidates(step, roster)) return;
    if (!unreadable_.contains(step)) {
      result.step = std::max(result.step, static_cast<uint64_t>(step));
    }
  };
  for (const auto& snapshot : snapshots) {
    if (counts(snapshot)) offer(snapshot.step, snapshot.roster);
  }
  if (!asks_copy) return result;
  for (const auto& copied : copy_.seen.checkpoints) offer(copied.step, copied.roster);
  return result;
}

Result<bool> Restorer::fetch(uint64_t step) {
  if (copy_.reader == nullptr) return true;
  const auto* const copied = copy_.seen.find(static_cast<int64_t>(step));
  if (copied == nullptr) return true;
  MUSTER_TRY(const auto snapshots, recorder_.store().list());
  const bool here = std::ranges::any_of(snapshots, [&](const ckpt::SnapshotInfo& each) {
    return each.step == copied->step && counts(each);
  });
  if (here) return true;
  log_.info("fetching the checkpoint of step {} from {}", step, copy_.reader->to());
  auto fetched = copy_.reader->fetch(*copied);
  if (fetched.ok()) return true;
  const auto kind = fetched.error().kind();
  if (kind != ErrorKind::kCheckpoint && kind != ErrorKind::kData) return std::move(fetched).error();
  recorder_.warn(fetched.error().message());
  return false;
}

Result<bool> Restorer::restore(uint64_t step, uint64_t roster) {
  roster_ = roster;
  if (step == 0) {
    MUSTER_RETURN_IF_ERROR(make_initial());
    return true;
  }
  log_.info("resuming after step {}", step);
  MUSTER_TRY(const bool whole, fetch(step));
  if (!whole) {
    unreadable_.insert(static_cast<int64_t>(step));
    return false;
  }
  const auto snapshot = recorder_.store().load(static_cast<int64_t>(step));
  if (!snapshot.ok()) {
    recorder_.warn(snapshot.error().message());
    unreadable_.insert(static_cast<int64_t>(step));
    return false;
  }
  MUSTER_RETURN_IF_ERROR(load(*snapshot));
  if (const auto checked = check_weights(*snapshot); !checked.ok()) {
    recorder_.warn(checked.error().message());
    unreadable_.insert(static_cast<int64_t>(step));
    return false;
  }
  return true;
}

Status Restorer::load_rows(std::vector<std::string> shards) {
  if (session_.rows() == nullptr) return {};
  MUSTER_RETURN_IF_ERROR(session_.rows()->load(std::move(shards), roster_));
  session_.arena().counters().era = roster_;
  session_.arena().seal_counters();
  return {};
}

Result<size_t> load_initial_weights(Session& session, FileSystem& files) {
  const auto& from = session.job().model.init_from;
  if (from.empty()) return 0;
  MUSTER_TRY(const auto file, open_weights(files, from, session.job().runs));
  const size_t loaded = session.arena().load_matching(file);
  if (loaded > 0) return loaded;
  return Error(ErrorKind::kCheckpoint,
               "model.init_from: nothing in '{}' has the name and shape of anything in this model",
               from);
}

Status Restorer::make_initial() {
  MUSTER_RETURN_IF_ERROR(session_.reset());
  MUSTER_TRY(const size_t loaded, load_initial_weights(session_, files_));
  session_.auditor().trust(0);
  MUSTER_RETURN_IF_ERROR(load_rows({}));  // weights may be among them
  const auto& from = session_.job().model.init_from;
  if (from.empty()) return {};
  const size_t all = session_.arena().tensors().size();
  log_.info("initial weights: {} of {} tensors from {}", loaded, all, from);
  if (loaded < all) {
    recorder_.warn(fmt::format("model.init_from: {} of {} tensors are not in '{}' and start afresh",
                               all - loaded, all, from));
  }
  return {};
}

Status Restorer::load(const ckpt::Snapshot& snapshot) {
  Arena& arena = session_.arena();
  if (auto same = check_model_file(session_.model_file_hash(), snapshot.meta); !same.ok()) {
    return std::move(same).error().context("'{}'", snapshot.path);
  }
  MUSTER_RETURN_IF_ERROR(arena.load_model(snapshot.model));
  MUSTER_RETURN_IF_ERROR(arena.load_state(snapshot.state));
  if (arena.counters().step != snapshot.step) {
    return Error(ErrorKind::kCheckpoint, "'{}' says step {} but its state is of step {}",
                 snapshot.path, snapshot.step, arena.counters().step);
  }
  if (session_.rows() != nullptr) {
    MUSTER_TRY(auto shards, saved_rows(snapshot.state));
    MUSTER_RETURN_IF_ERROR(load_rows(std::move(shards)));
    MUSTER_TRY(const bool fits, session_.rows()->is_at(snapshot.step));
    if (!fits) {
      return Error(ErrorKind::kCheckpoint, "the rows in '{}' are not of step {}", snapshot.path,
                   snapshot.step);
    }
  }
  // Now it is known to be of this model.
  MUSTER_TRY(const auto fingerprint, session_.fingerprint());
  const Accepted accepted{.numerics = session_.job().numerics == "tolerant",
                          .data = accept_other_data_};
  auto warning = check_resumed(fingerprint, snapshot.meta, accepted);
  if (!warning.ok()) return std::move(warning).error().context("'{}'", snapshot.path);
  if (!warning->empty()) recorder_.warn(fmt::format("'{}': {}", snapshot.path, *warning));
  // The blocks that were damaged are of the data that it had then.
  const auto found = snapshot.meta.find("fingerprint");
  const auto saved = found != snapshot.meta.end() ? fingerprint_from(*found) : JobFingerprint{};
  const bool known = !saved.train_data.empty() && !fingerprint.train_data.empty();
  if (known && saved.train_data != fingerprint.train_data) {
    arena.counters().replaced.count = 0;
    arena.counters().replaced.blocks.fill(0);
    arena.seal_counters();
  }
  seconds_before_ = meta_value(snapshot, "seconds", 0.0);
  session_.auditor().trust(meta_value(snapshot, "trusted", snapshot.step));
  return {};
}

// Its files are as they were written; but the copy that they were written from may have been
// damaged.
Status Restorer::check_weights(const ckpt::Snapshot& snapshot) {
  const auto hash = meta_value(snapshot, "weights_hash", std::string());
  if (hash.empty() || hash == session_.arena().weights_hash().hex()) return {};
  return Error(ErrorKind::kCheckpoint,
               "the weights in '{}' are not those that were to be saved: the memory of the worker "
               "that wrote it is faulty; remove this checkpoint to continue from an earlier one",
               snapshot.path);
}

}  // namespace muster::train
