// Records whose input is a list of ids, of any length up to a maximum, with or without a value for
// each: what embedding tables take (Schema::has_ids).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/node.h"
#include "muster/data/schema.h"

namespace muster::data {

struct Value;

// Immutable; safe for concurrent use.
class IdLists {
 public:
  // From the job's options, and these entries of its `args`: ids, values, features. Nothing if
  // `ids` is not there. Errors: kJob.
  static Result<std::optional<IdLists>> make(const config::SourceOptions& options,
                                             config::ArgReader& args);

  // The fields that are read: ids, then values if there are any.
  std::vector<std::string> names() const;
  // Sets the input of a schema.
  void describe(Schema& schema) const;
  // Writes the input of a sample: the ids in their order, -1 in the columns that are left; then the
  // values, if there are any, and 0. `fields` are those of names(). Errors (kData): something is
  // not an id or a value, there are too many, or not a value for each id.
  Status read(std::span<const Value> fields, std::byte* input) const;

 private:
  std::string ids_;
  std::string values_;  // empty: there are none
  int64_t features_ = 0;
};

}  // namespace muster::data
