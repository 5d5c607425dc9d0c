// Any bytes as lines of JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  const std::string_view contents(reinterpret_cast<const char*>(data) + 1, size - 1);
  config::SourceOptions options;
  options.format = "jsonl";
  options.classes = 4;
  options.args = testing::args_of("{ input: x }");
  auto format = make_jsonl(options);
  // Small blocks: the bytes of each are read in memory of their own.
  const uint64_t block_bytes = (data[0] & 128) != 0 ? 1 : 4096;
  const auto all = testing::read_all(**format, contents, block_bytes);
  (void)all.ok();
  return 0;
}
