// Any bytes as a file of Arrow's IPC format: read or refused with a sentence, never a crash. The
// first byte sets the options. Needs the plugin (column_plugin.h).
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "muster/base/check.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::data;
  if (size < 2) return 0;
  const std::string_view contents(reinterpret_cast<const char*>(data) + 1, size - 1);
  config::SourceOptions options;
  options.format = "arrow";
  options.classes = 4;
  const char* const inputs[] = {"{ input: [dense, more] }", "{ input: [half, byte, flag, maybe] }",
                                "{ input: image.bytes, shape: [1, 2, 3] }",
                                "{ input: image, size: 8 }"};
  options.args = testing::args_of(inputs[data[0] % 4]);
  auto format = make_arrow(options);
  MUSTER_CHECK(format.ok(), format.error().message());
  const auto all = testing::read_all(**format, contents, 1);
  (void)all.ok();
  return 0;
}
