#include "tools/muster-launch/verify/commits.h"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "muster/track/metrics.h"

namespace muster::cli {

size_t read_commits(std::string_view text, CommitTimes& times, uint64_t& rollback) {
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    const auto record = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!record.is_object()) continue;
    const auto step = record.find("step");
    const auto time = record.find("time");
    if (step == record.end() || !step->is_number_unsigned()) continue;
    if (time == record.end() || !time->is_number()) continue;
    // After a rollback the steps behind it come once more.
    const auto at = step->get<uint64_t>();
    const uint64_t number = track::rollback_of(record);
    if (number < rollback) continue;
    if (number > rollback) times.erase(times.lower_bound(at), times.end());
    rollback = number;
    times[at] = time->get<double>();
  }
  return begin;
}

void Commits::look() {
  struct stat now{};
  if (stat(path_.c_str(), &now) != 0) return;
  if (!is_ours(now) || now.st_size < offset_) {
    close_file();
    times_.clear();
    rollback_ = 0;
    offset_ = 0;
    file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0 || fstat(file_, &opened_) != 0) return;
  }
  std::string text;
  char piece[65536];
  for (ssize_t count = 0; (count = pread(file_, piece, sizeof(piece),
                                         offset_ + static_cast<off_t>(text.size()))) > 0;) {
    text.append(piece, static_cast<size_t>(count));
  }
  offset_ += static_cast<off_t>(read_commits(text, times_, rollback_));
}

bool Commits::is_ours(const struct stat& file) const {
  return file_ >= 0 && file.st_dev == opened_.st_dev && file.st_ino == opened_.st_ino;
}

void Commits::close_file() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

}  // namespace muster::cli
