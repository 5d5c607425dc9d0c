// What the table says, for people and for editors.
#pragma once

#include <string>
#include <string_view>

#include "muster/base/result.h"

namespace muster::config {

// What `muster config explain KEY` prints: an option with its type, default and an example, or a
// section with what is in it. "" explains the job as a whole. An unknown key is an error with a
// suggestion.
Result<std::string> explain(std::string_view key);

// JSON Schema, draft 2020-12, for editors that complete and check YAML. Checks single values; what
// must fit together only load_job checks.
std::string json_schema();

// docs/job-file.md
std::string reference_page();

}  // namespace muster::config
