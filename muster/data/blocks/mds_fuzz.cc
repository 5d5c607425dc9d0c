// Any bytes as an MDS shard. The first byte sets the options.
#include <cstddef>
#include <cstdint>

#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  config::SourceOptions options;
  options.format = "mds";
  options.classes = 4;
  options.args =
      testing::args_of((data[0] & 1) != 0 ? "{ input: weights }" : "{ input: image, size: 8 }");
  return testing::fuzz_format(options, data, size);
}
