// The JSON header of a safetensors file, read strictly. Used by safetensors.cc only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muster/ckpt/safetensors.h"

namespace muster::ckpt::internal {

struct HeaderEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // as they come
  std::map<std::string, std::string> metadata;
};

// What is wrong with the header, as the middle of a sentence, or "" if `out` is filled. Does not
// look at whether offsets make sense.
std::string parse_header(std::string_view json, Header& out);

}  // namespace muster::ckpt::internal
