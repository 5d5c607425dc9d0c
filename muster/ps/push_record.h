// What the push of a task was computed from, in a few bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::ps {

// Numbers of tasks, places and updates are below it: what is larger is damaged.
inline constexpr int64_t kMostNumber = int64_t{1} << 48;

struct PushRecord {
  int64_t task = 0;
  // Of each time that rows were read: how many updates the shards had, of those that it had keys
  // of, in the order of their numbers.
  std::vector<std::vector<int64_t>> versions;
  bool operator==(const PushRecord&) const = default;

  // The smallest of them, or `otherwise`.
  int64_t oldest(int64_t otherwise) const;
  // Updates between that and the push, before which there are so many.
  int64_t staleness(int64_t updates) const { return updates - oldest(updates); }
};

// `place`: of the push, from 0. `updates`: before it.
void append_record(std::string& to, int64_t place, int64_t updates, const PushRecord& record);
Result<PushRecord> take_record(std::string_view& from, int64_t place, int64_t updates);
// All of them. `pushes`: that make one update.
Result<std::vector<PushRecord>> read_records(std::string_view from, int64_t pushes);

}  // namespace muster::ps
