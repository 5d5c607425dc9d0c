// Records whose input is a list of token ids, for language models: each record is one sample, whose
// target is the list one token later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/node.h"
#include "muster/data/schema.h"

namespace muster::data {

struct Value;

// Immutable; safe for concurrent use.
class TokenLists {
 public:
  // From the job's options (`context`, `classes`), and the entry `tokens` of its `args`. Nothing if
  // that is not there. Errors: kJob.
  static Result<std::optional<TokenLists>> make(const config::SourceOptions& options,
                                                config::ArgReader& args);

  // The field that is read.
  const std::string& name() const { return name_; }
  // Sets the input and target of a schema.
  void describe(Schema& schema) const;
  // Error (kData): the field is no list of context + 1 numbers. Before memory for samples is taken:
  // `context` may be anything.
  Status check(const Value& field) const;
  // Writes a sample: the first `context` tokens, and those from the second on. Errors (kData): that
  // of check(), or a number is no token below `classes`.
  Status read(const Value& field, std::byte* input, std::byte* target) const;

 private:
  std::string name_;
  int64_t context_ = 0;
  int64_t classes_ = 0;
};

}  // namespace muster::data
