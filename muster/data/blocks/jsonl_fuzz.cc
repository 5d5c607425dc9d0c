// Any bytes as lines of JSON. The lowest bit of the first byte says whether the input is ids.
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
  options.args =
      testing::args_of((data[0] & 1) != 0 ? "{ ids: x, values: y, features: 3 }" : "{ input: x }");
  return testing::fuzz_format(options, data, size);
}
