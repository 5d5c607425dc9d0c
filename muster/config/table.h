// The one table of options.
//
// Each option of a job is listed once, in table.cc, with its name, type, range, meaning and place
// in Job. Reading YAML, -s and the environment, writing the resolved job, explaining, comparing,
// the JSON schema and docs/job-file.md all walk this table, so they cannot disagree. Defaults are
// not in it: they are what a default-constructed Job holds.
//
// The table is constant; everything here is a pure function. Safe for concurrent use.
//
// Refuses: nothing but single values. What only makes sense together is checked by validate.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/node.h"
#include "muster/config/option.h"

namespace muster::config {

struct SectionInfo {
  std::string key;  // "optimizer.schedule"; "" is the job itself
  std::string doc;
};

struct Table {
  std::vector<Option> options;  // in the order in which a job is written
  std::vector<SectionInfo> sections;

  const Option* find(std::string_view key) const;
  const SectionInfo* find_section(std::string_view key) const;
  // The option of which "model.args.width" is a part: model.args. nullptr if there is none.
  const Option* find_tree_above(std::string_view key) const;
  // What stands directly in a section, options and sections, without its prefix.
  std::vector<std::string> names_in(std::string_view section) const;
  // " (did you mean 'optimizer.lr'?)" for a key that is neither option nor section, or "".
  std::string suggestion(std::string_view key) const;
};

const Table& option_table();

// Where options were set, for those that were; also where their sections begin, and under "" the
// job file itself.
using Places = std::map<std::string, Mark, std::less<>>;

// Sets the options in `tree`, a map as in a job file, that belongs at `section` ("" for a whole
// file). Stops at the first mistake. Paths are taken relative to `base`.
Status read_options(const Node& tree, std::string_view section, const std::string& base, Job& job,
                    Places& places);

// All options with their values, in the table's order, as a job file. Reading it gives an equal
// job, and writing that the same bytes.
std::string resolved_yaml(const Job& job);

struct Difference {
  std::string key;
  std::string a;  // as YAML on one line
  std::string b;
};
// The options in which two jobs differ, in the table's order.
std::vector<Difference> diff(const Job& a, const Job& b);

}  // namespace muster::config
