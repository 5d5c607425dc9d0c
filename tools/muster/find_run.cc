#include "tools/muster/find_run.h"

#include <algorithm>
#include <filesystem>

#include "muster/base/text.h"
#include "muster/ckpt/snapshot.h"
#include "muster/config/load.h"
#include "muster/config/source.h"

namespace muster::cli {
namespace {

std::vector<std::string> names_of(const std::vector<track::RunSummary>& runs) {
  std::vector<std::string> names;
  names.reserve(runs.size());
  for (const auto& run : runs) names.push_back(run.name);
  return names;
}

Result<track::RunDirectory> find_latest(const std::string& root, FileSystem& files) {
  auto latest = track::RunDirectory::open(files, root + "/latest");
  if (latest.ok()) {
    // By its own name rather than `latest`, which may mean another run a moment later.
    std::error_code failed;
    const auto target = std::filesystem::read_symlink(root + "/latest", failed);
    if (failed) return latest;
    auto direct = track::RunDirectory::open(files, root + "/" + target.filename().string());
    return direct.ok() ? std::move(direct) : std::move(latest);
  }
  MUSTER_TRY(const auto runs, track::list_runs(files, root));
  if (runs.empty()) {
    return Error(ErrorKind::kUsage,
                 "there are no runs in '{}'; `muster train JOB` makes one, --runs looks elsewhere",
                 root);
  }
  return track::RunDirectory::open(files, runs.back().path);
}

// Whether `key` is `allowed` or inside it.
bool is_inside(std::string_view key, std::string_view allowed) {
  return key.starts_with(allowed) && (key.size() == allowed.size() || key[allowed.size()] == '.');
}

}  // namespace

Result<track::RunDirectory> find_run(const RunChoice& choice, FileSystem& files) {
  if (choice.name.empty() || choice.name == "latest") return find_latest(choice.runs, files);
  const bool is_path = choice.name.find('/') != std::string::npos || choice.name == ".";
  if (is_path) {
    const size_t end = choice.name.find_last_not_of('/');
    return track::RunDirectory::open(
        files, end == std::string::npos ? choice.name : choice.name.substr(0, end + 1));
  }
  MUSTER_TRY(const auto runs, track::list_runs(files, choice.runs));
  std::vector<std::string> starting;
  for (const auto& run : runs) {
    if (run.name == choice.name) return track::RunDirectory::open(files, run.path);
    if (run.name.starts_with(choice.name)) starting.push_back(run.path);
  }
  if (starting.size() == 1) return track::RunDirectory::open(files, starting.front());
  if (files.exists(choice.name + "/job.yaml")) {
    return track::RunDirectory::open(files, choice.name);
  }
  if (starting.size() > 1) {
    return Error(ErrorKind::kUsage,
                 "'{}' is the start of {} runs in '{}'; write more of the name (`muster runs list` "
                 "shows them)",
                 choice.name, starting.size(), choice.runs);
  }
  const auto names = names_of(runs);
  return Error(ErrorKind::kUsage, "there is no run '{}' in '{}'{}; `muster runs list` shows {}",
               choice.name, choice.runs, did_you_mean(choice.name, names),
               runs.empty() ? "none there" : "what is there");
}

bool is_copy(const std::string& name, FileSystem& files) {
  return config::is_url(name) || (!name.empty() && files.exists(name + "/latest.json"));
}

std::string run_name(const track::RunDirectory& run) {
  std::error_code failed;
  const auto path = std::filesystem::absolute(run.path(), failed).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

Result<config::Job> load_run_job(const track::RunDirectory& run,
                                 const std::vector<std::string>& sets,
                                 const std::vector<std::string>& allowed, const std::string& why,
                                 FileSystem& files, const OtherData& other) {
  for (const auto& set : sets) {
    const std::string key(trim(std::string_view(set).substr(0, set.find('='))));
    const bool fine =
        std::ranges::any_of(allowed, [&](const std::string& name) { return is_inside(key, name); });
    if (!fine) {
      return Error(ErrorKind::kUsage, "-s {}: only {} can change here; {}", key,
                   join_words(allowed), why);
    }
  }
  config::Sources sources;
  MUSTER_TRY(sources.file_text, files.read(run.job_file()));
  sources.file_name = run.job_file();
  sources.sets = sets;
  std::error_code failed;
  sources.base_dir = std::filesystem::absolute(run.path(), failed).string();
  sources.current_dir = std::filesystem::current_path(failed).string();
  MUSTER_TRY(auto loaded, other.path.empty()
                              ? config::load_job(sources)
                              : config::load_job_with_data(sources, other.path, other.format));
  return std::move(loaded.job);
}

Result<std::string> default_checkpoint(const track::RunDirectory& run, FileSystem& files) {
  ckpt::SnapshotStore store(files, run.checkpoints(), 1, true);
  MUSTER_TRY(const auto snapshots, store.list());
  const bool marked =
      std::ranges::any_of(snapshots, [](const auto& snapshot) { return snapshot.best; });
  return std::string(marked ? "best" : "newest");
}

Result<bool> has_checkpoint(const track::RunDirectory& run, const std::string& step,
                            FileSystem& files) {
  ckpt::SnapshotStore store(files, run.checkpoints(), 1, true);
  MUSTER_TRY(const auto snapshots, store.list());
  return std::ranges::any_of(
      snapshots, [&](const auto& snapshot) { return std::to_string(snapshot.step) == step; });
}

Result<std::string> step_of_checkpoint(const track::RunDirectory& run, const std::string& which,
                                       FileSystem& files) {
  if (which != "best" && which != "newest") return which;
  ckpt::SnapshotStore store(files, run.checkpoints(), 1, true);
  MUSTER_TRY(const auto snapshots, store.list());
  if (snapshots.empty()) return which;
  auto found = snapshots.rbegin();
  if (which == "best") {
    found = std::find_if(found, snapshots.rend(), [](const auto& each) { return each.best; });
    if (found == snapshots.rend()) found = snapshots.rbegin();
  }
  return std::to_string(found->step);
}

}  // namespace muster::cli
