// Any bytes as a message to or from the registry: read or refused. What was read is written as it
// was. To get past the checksum, the right one is put in.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "muster/base/hash.h"
#include "muster/ps/net/control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)ps::decode_control(bytes);
  if (size < 16) return 0;
  const uint64_t checksum = hash64(bytes.data() + 8, bytes.size() - 8);
  std::memcpy(bytes.data(), &checksum, sizeof(checksum));
  const auto message = ps::decode_control(bytes);
  if (!message.ok()) return 0;
  const auto again = ps::decode_control(ps::encode_control(*message));
  if (!again.ok() || again->index() != message->index()) std::abort();
  return 0;
}
