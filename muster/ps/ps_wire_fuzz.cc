// Any bytes as a message: read or refused. What was read is written as it was. To get past the
// checksum, the right one is put in.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "muster/base/hash.h"
#include "muster/ps/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)ps::decode(ps::Bytes(bytes));
  if (size < 32) return 0;
  const size_t head = 32 + size_t{data[15]} * 8;  // with its fields
  if (size < head) return 0;
  const uint64_t checksum =
      hash64(bytes.data() + 8, head - 8, hash64(bytes.data() + head, size - head));
  std::memcpy(bytes.data(), &checksum, sizeof(checksum));
  const auto message = ps::decode(ps::Bytes(bytes));
  if (!message.ok()) return 0;
  const auto again = ps::decode(ps::Bytes(ps::encode(*message).flat()));
  if (!again.ok() || again->index() != message->index()) std::abort();
  return 0;
}
