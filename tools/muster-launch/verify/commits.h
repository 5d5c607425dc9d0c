// The commits of a run that is under way, read from its metrics file as they come.
//
// Whoever takes over recording puts another file in its place, without what comes again; then it is
// read anew. The file that was read last stays open, so that no other can have its inode.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace muster::cli {

// When each step was committed: seconds since 1970, by step.
using CommitTimes = std::map<uint64_t, double>;

// Adds the commits that the whole lines of `text` tell of; what else is in it is passed over. Of
// steps that a rollback made void, only what came after it counts (`rollback`: the last one seen).
// Returns how much of it was whole lines.
size_t read_commits(std::string_view text, CommitTimes& times, uint64_t& rollback);

class Commits {
 public:
  explicit Commits(std::string path) : path_(std::move(path)) {}
  ~Commits() { close_file(); }
  Commits(const Commits&) = delete;
  Commits& operator=(const Commits&) = delete;

  // Reads what has come since.
  void look();
  uint64_t newest() const { return times_.empty() ? 0 : times_.rbegin()->first; }
  const CommitTimes& times() const { return times_; }

 private:
  bool is_ours(const struct stat& file) const;
  void close_file();

  std::string path_;
  int file_ = -1;
  struct stat opened_{};
  off_t offset_ = 0;  // what is before it has been read
  CommitTimes times_;
  uint64_t rollback_ = 0;
};

}  // namespace muster::cli
