// Any bytes as an answer of S3 or of a name node: read or refused with a sentence, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "muster/store/hdfs_store.h"
#include "muster/store/http_client.h"
#include "muster/store/s3_settings.h"
#include "muster/store/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::store;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_list_page(text).ok();
  (void)parse_s3_error(text);
  (void)parse_content_range(text);
  (void)parse_ini(text, "config").ok();
  (void)parse_file_status(text, "x").ok();
  (void)parse_list_status(text, "x").ok();
  return 0;
}
