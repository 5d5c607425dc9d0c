// Any bytes as a table that is read by blocks. The first byte sets the options.
#include <cstddef>
#include <cstdint>

#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  config::SourceOptions options;
  options.format = "csv";
  options.classes = 4;
  options.header = (data[0] & 1) != 0;
  options.target = (data[0] & 2) != 0 ? "value" : "class";
  if ((data[0] & 4) != 0) options.label = "label";
  return testing::fuzz_format(options, data, size);
}
