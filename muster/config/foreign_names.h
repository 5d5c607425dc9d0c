// What options are called in other frameworks, for suggestions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

struct ForeignName {
  std::string key;   // of our option; empty: there is none
  std::string hint;  // with no key: what to do instead
};

// For a key that is not ours, by all of it ("optimizer.type") or by its last part
// ("learning_rate", also as "learningRate" or "Learning-Rate"). Both empty: it is nobody's.
ForeignName foreign_name(std::string_view key);
// All that are known, for tests.
std::vector<std::string_view> foreign_names();

}  // namespace muster::config
