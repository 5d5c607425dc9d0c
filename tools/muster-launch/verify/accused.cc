#include "tools/muster-launch/verify/accused.h"

#include <fmt/format.h>

#include "muster/base/text.h"

namespace muster::cli {
namespace {

// As train/membership/membership.cc says it: "...: worker 2 on host is wrong, the others agree.
// ..."
constexpr std::string_view kBefore = ": worker ";
constexpr std::string_view kBehind = " is wrong, the others agree";

// And of itself: "the counters of worker 2 on host have changed by themselves: ...". Only its own
// log has that.
constexpr std::string_view kOwn = "the counters of worker ";
constexpr std::string_view kOwnBehind = " have changed by themselves";

}  // namespace

void find_accusations(std::string_view log, std::set<std::string>& sentences) {
  for (const auto& line : split(log, '\n')) {
    const size_t end = line.find(kBehind);
    if (const size_t own = line.find(kOwnBehind); own != std::string::npos) {
      const size_t begin = line.find(kOwn);
      if (begin < own)
        sentences.insert(fmt::format("{} at {}", line.substr(begin, own - begin), line));
      continue;
    }
    if (end == std::string::npos) continue;
    // Without what the log puts before it (time, level).
    const size_t begin = std::min(line.find("the states of"), line.find("two workers computed"));
    if (begin < end) sentences.insert(line.substr(begin, end - begin));
  }
}

std::map<std::string, int> accused(const std::set<std::string>& sentences) {
  std::map<std::string, int> counts;
  for (const auto& sentence : sentences) {
    const bool own = sentence.starts_with(kOwn);
    const size_t begin = own ? 0 : sentence.rfind(kBefore);
    if (begin == std::string::npos) continue;
    const auto names = sentence.substr(begin + (own ? kOwn : kBefore).size());
    ++counts[names.substr(0, names.find(' '))];
  }
  return counts;
}

Result<std::map<std::string, int>> read_accused(FileSystem& files, const std::string& directory) {
  std::set<std::string> sentences;
  MUSTER_TRY(const auto names, files.list(directory));
  for (const auto& name : names) {
    MUSTER_TRY(const auto text, files.read(fmt::format("{}/{}", directory, name)));
    find_accusations(text, sentences);
  }
  return accused(sentences);
}

std::vector<std::string> wrong_accusations(const std::map<std::string, int>& accused,
                                           const std::vector<InjectedFault>& happened) {
  std::map<std::string, int> faulty;
  for (const auto& what : happened) {
    const bool flip = what.kind == launch::FaultKind::kFlip;
    if (flip || what.kind == launch::FaultKind::kLie) ++faulty[what.whom];
  }
  std::map<std::string, std::pair<int, int>> both;
  for (const auto& [id, times] : faulty) both[id].first = times;
  for (const auto& [id, times] : accused) both[id].second = times;
  std::vector<std::string> found;
  for (const auto& [id, times] : both) {
    if (times.first == times.second) continue;
    found.push_back(fmt::format("audit: worker {} was made faulty {} times, and accused {} times",
                                id, times.first, times.second));
  }
  return found;
}

}  // namespace muster::cli
