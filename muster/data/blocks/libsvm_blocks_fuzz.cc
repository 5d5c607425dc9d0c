// Any bytes as records of ids that are read by blocks. The lowest bit of the first byte says
// whether they have values.
#include <cstddef>
#include <cstdint>

#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  config::SourceOptions options;
  options.format = "libsvm";
  options.classes = 4;
  options.args =
      testing::args_of((data[0] & 1) != 0 ? "{ features: 5, values: true }" : "{ features: 5 }");
  return testing::fuzz_format(options, data, size);
}
