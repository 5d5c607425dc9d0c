// Any bytes as a Parquet file: read or refused with a sentence, never a crash.
#include <cstddef>
#include <cstdint>

#include "muster/data/blocks/formats_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return muster::data::testing::fuzz_columns("parquet", data, size);
}
