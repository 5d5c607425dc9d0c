// Numbers out of JSON text, by key.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/blocks/record.h"

namespace muster::data {

// values[i]: the entry names[i] of the object in `text`: a number, true (1), false (0), or a list
// of these, lists inside it following each other. Entries of other kinds are kOther. Of an
// entry that is there twice the last one counts. Errors (kData): the text is not one JSON object.
Status read_json_fields(std::string_view text, std::span<const std::string> names,
                        std::span<Value> values);
// The keys of the object.
std::vector<std::string> json_keys(std::string_view text);

}  // namespace muster::data
