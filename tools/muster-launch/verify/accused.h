// Which workers an audit accused (train/audit/audit.h), as the workers' logs tell: verify compares
// that with whom it made faulty.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

#include "tools/muster-launch/verify/timeline.h"

namespace muster::cli {

// The sentences in which a log says that a worker is wrong. All workers come to the same verdict,
// so the same sentence is in each log.
void find_accusations(std::string_view log, std::set<std::string>& sentences);
// How often each worker was accused.
std::map<std::string, int> accused(const std::set<std::string>& sentences);

// From all logs in this directory.
Result<std::map<std::string, int>> read_accused(FileSystem& files, const std::string& directory);

// A sentence for each worker that was accused more or less often than it was made faulty.
std::vector<std::string> wrong_accusations(const std::map<std::string, int>& accused,
                                           const std::vector<InjectedFault>& happened);

}  // namespace muster::cli
