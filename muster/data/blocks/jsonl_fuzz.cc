// Any bytes as lines of JSON. The lowest bits of the first byte say whether the input is ids, or
// tokens.
#include <cstddef>
#include <cstdint>

#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  config::SourceOptions options;
  options.format = "jsonl";
  options.classes = 4;
  options.context = 3;
  options.args = testing::args_of((data[0] & 2) != 0   ? "{ tokens: x }"
                                  : (data[0] & 1) != 0 ? "{ ids: x, values: y, features: 3 }"
                                                       : "{ input: x }");
  return testing::fuzz_format(options, data, size);
}
