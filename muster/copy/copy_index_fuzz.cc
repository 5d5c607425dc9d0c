// Any JSON as the index of a copy, with the hash that makes it believed: read or refused with a
// sentence, never a crash; and what was read names nothing outside of the run directory.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/copy/copy_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using muster::copy::CopyIndex;
  using nlohmann::json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)CopyIndex::decode(text).ok();
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return 0;
  object.erase("xxh3_128");
  const auto dump = object.dump(-1, ' ', false, json::error_handler_t::replace);
  object["xxh3_128"] = muster::hash128(std::as_bytes(std::span(dump))).hex();
  const auto read = CopyIndex::decode(object.dump(-1, ' ', false, json::error_handler_t::replace));
  if (!read.ok()) return 0;
  for (const auto& file : read->files) {
    MUSTER_CHECK(file.name.find("../") == std::string::npos && !file.name.starts_with('/'),
                 file.name);
  }
  const auto again = CopyIndex::decode(read->encode());
  MUSTER_CHECK(again.ok() && *again == *read, "an index that was read is written as it is");
  return 0;
}
