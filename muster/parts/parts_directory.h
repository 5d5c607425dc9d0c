// Work that several processes share through a directory, and that survives the end of any of them:
// numbered parts, each of which becomes a file; in the end the files are joined in order. Parts
// that are lines of text are joined here; others by a function that knows their form.
//
//   DIR/plan.json    what the result depends on, and which samples are in which part
//   DIR/claims       an empty file: its locks say who works on which part
//   DIR/done/N       the lines of part N, or what else stands for its samples, complete
//   DIR/joined       the result while it is being joined
//   DIR/result       the result, complete: of parts that are not lines
//   DIR/index/       indexes of the data, for who needs one
//   DIR/workers/     ID.err: what each worker wrote to standard error; ID.doing: what it waits for
//
// No coordinator is needed. A process claims a part with a lock on a byte of `claims`, which the
// kernel releases when the process ends, however it ends. A part's file is written beside its place
// and renamed, so it is there as a whole or not at all; a part that was claimed and not written is
// computed again by whoever claims it next. Parts follow from the plan, so it does not matter who
// that is.
//
// Not safe for concurrent use; each process, or thread, has an object of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/fd.h"
#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::parts {

struct PartPlan {
  // An object of all that the result depends on: {"checkpoint": 500, "data": "0f3c..."}.
  nlohmann::json facts = nlohmann::json::object();
  std::string header;             // in front of the first line: "" or a line
  std::vector<uint64_t> borders;  // cut.h

  size_t parts() const { return borders.empty() ? 0 : borders.size() - 1; }
  uint64_t samples() const { return borders.empty() ? 0 : borders.back(); }
  bool operator==(const PartPlan&) const = default;
};

// A lock, held until it is destroyed.
class PartLock {
 public:
  PartLock(PartLock&& other) noexcept = default;
  PartLock& operator=(PartLock&&) = delete;
  ~PartLock();

 private:
  friend class PartsDirectory;
  PartLock(std::shared_ptr<Fd> claims, int64_t byte) : claims_(std::move(claims)), byte_(byte) {}
  std::shared_ptr<Fd> claims_;  // null: moved from
  int64_t byte_;
};

struct Claim {
  size_t part = 0;
  PartLock lock;
};

class PartsDirectory {
 public:
  // Makes the directory, if it is not there. kUsage if it is and has something else in it: remove()
  // would remove that too. `files` must outlive it; locks work on the real disk whatever it is.
  static Result<PartsDirectory> open(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  std::string indexes() const { return path_ + "/index"; }
  std::string workers() const { return path_ + "/workers"; }
  std::string part_file(size_t part) const;

  // The right to start workers here and to join what they have done. kUsage: another has it.
  Result<PartLock> lock() const;

  // Writes the plan. If there is one already, it must be the same; otherwise the error (kUsage)
  // says which fact differs. Parts without a plan, which a killed remove() may leave, are deleted:
  // nobody knows what they are parts of. No part may be claimed before.
  Status agree(const PartPlan& plan) const;
  // Nothing: there is none yet. kData: it cannot be read.
  Result<std::optional<PartPlan>> plan() const;

  // Which parts of the plan are done.
  Result<std::vector<bool>> done(const PartPlan& plan) const;
  // The next part to work on, in order: first those that nobody works on; then, waiting for each,
  // those whose worker has died. Nothing: all parts are done.
  Result<std::optional<Claim>> claim(const PartPlan& plan);
  // Writes the file of a part that was claimed. `write` appends its contents: lines, one for each
  // sample, if join() is to join them.
  Status finish(const Claim& claim, const std::function<Status(WritableFile& file)>& write) const;

  // Writes the header and all parts, which must be done, to `out`, which is on the same disk and
  // replaced at once. kData if a file does not have as many lines as its part has samples.
  Status join(const PartPlan& plan, const std::string& out) const;

  // For parts that are not lines, once all of them are done: writes the result, unless it is
  // complete already. Several processes may call it. One of them writes and the others wait; if it
  // dies, the next one writes from the beginning. `write` appends the result to an empty file.
  Status assemble(const std::function<Status(WritableFile& file)>& write) const;
  // Whether assemble() has succeeded, here or in another process.
  bool has_result() const;
  // Moves the result to `out`, which is on the same disk and replaced at once.
  Status publish(const std::string& out) const;

  Status remove() const;

 private:
  PartsDirectory(FileSystem& files, std::string path, Fd claims)
      : files_(&files), path_(std::move(path)), claims_(std::make_shared<Fd>(std::move(claims))) {}
  std::string done_folder() const { return path_ + "/done"; }
  std::string plan_file() const { return path_ + "/plan.json"; }
  // In here, so that nothing is left beside `out` by a process that is killed meanwhile.
  std::string joined_file() const { return path_ + "/joined"; }
  std::string result_file() const { return path_ + "/result"; }
  Status move(const std::string& from, const std::string& out) const;
  // Nothing: another process has it, and `wait` is false.
  Result<std::optional<PartLock>> take(int64_t byte, bool wait) const;

  FileSystem* files_;
  std::string path_;
  std::shared_ptr<Fd> claims_;
  std::vector<bool> done_;  // when claim() last looked
  size_t next_ = 0;         // where claim() goes on
  bool waits_ = false;      // claim() has tried all parts
};

}  // namespace muster::parts
