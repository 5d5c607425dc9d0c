// Any bytes as a TFRecord file: read or refused with a sentence, never a crash. The first byte sets
// the options.
#include <cstddef>
#include <cstdint>

#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  config::SourceOptions options;
  options.format = "tfrecord";
  options.classes = 4;
  options.context = 3;
  const char* const inputs[] = {"{ input: image/encoded, size: 8 }", "{ input: [dense, more] }",
                                "{ tokens: more }",
                                "{ ids: image/class/label, values: dense, features: 3 }"};
  options.args = testing::args_of(inputs[(data[0] & 1) + ((data[0] & 4) != 0 ? 2 : 0)]);
  if ((data[0] & 2) != 0) options.label = "image/class/label";
  return testing::fuzz_format(options, data, size);
}
