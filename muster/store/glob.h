// Wildcards in addresses: * is any characters within a name, ? is one, and a ** that stands alone
// between slashes is any number of folders (at the end: every object below).
//
// As in a shell, a wildcard does not match the '.' that a name begins with, so that hidden files
// are no data. There is no character that takes the meaning from another one: a * in a name is
// matched by ?.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::store {

bool has_wildcard(std::string_view text);

class Glob {
 public:
  // Errors (kJob): a ** beside other characters.
  static Result<Glob> parse(std::string_view pattern);

  bool matches(std::string_view name) const;
  // What each name that matches begins with, up to the first wildcard: "data/a" of "data/a*/b".
  const std::string& prefix() const { return prefix_; }
  // The names between the slashes; "**" is never followed by "**".
  const std::vector<std::string>& parts() const { return parts_; }
  // Whether only the last name contains wildcards: objects in deeper folders cannot match.
  bool in_one_folder() const;

 private:
  std::vector<std::string> parts_;
  std::string prefix_;
};

// Whether a single name, without slashes, matches a part of a Glob that is not "**".
bool name_matches(std::string_view part, std::string_view name);

}  // namespace muster::store
