// Any bytes: no crash, and what is accepted survives being written and read again.
#include <cstdint>
#include <cstring>
#include <string>

#include "muster/base/check.h"
#include "muster/base/fault_injection_testing.h"
#include "muster/ckpt/safetensors.h"

using muster::FaultInjectionFileSystem;
using muster::ckpt::SafetensorsFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Half of the inputs are headers whose length is right, so that the fuzzer need not find it.
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] == '{') {
    const size_t end = bytes.find('|');  // what follows are the tensors' bytes
    const std::string header = bytes.substr(0, end);
    const uint64_t length = header.size();
    std::string whole(8, '\0');
    std::memcpy(whole.data(), &length, 8);
    bytes = whole + header + (end == std::string::npos ? "" : bytes.substr(end + 1));
  }
  const auto file = SafetensorsFile::parse(bytes, "input");
  if (!file.ok()) return 0;

  size_t total = 0;
  for (const auto& tensor : file->tensors()) {
    for (const auto byte : tensor.data) total += static_cast<size_t>(byte);  // all readable
    MUSTER_CHECK(file->find(tensor.name) == &tensor, "found by its name");
  }
  FaultInjectionFileSystem fs;
  const auto written = muster::ckpt::write_safetensors(fs, "w", file->tensors(), file->metadata());
  MUSTER_CHECK(written.ok(), written.ok() ? "" : written.error().message());
  const auto again = SafetensorsFile::open(fs, "w");
  MUSTER_CHECK(again.ok(), again.ok() ? "" : again.error().message());
  MUSTER_CHECK(again->metadata() == file->metadata(), "same metadata");
  MUSTER_CHECK(again->tensors().size() == file->tensors().size(), "same tensors");
  for (const auto& tensor : again->tensors()) {
    const auto* original = file->find(tensor.name);
    MUSTER_CHECK(original && original->dtype == tensor.dtype && original->shape == tensor.shape &&
                     original->data.size() == tensor.data.size() &&
                     std::equal(tensor.data.begin(), tensor.data.end(), original->data.begin()),
                 "same tensor");
    for (const auto byte : tensor.data) total -= static_cast<size_t>(byte);
  }
  MUSTER_CHECK(total == 0, "same bytes");
  return 0;
}
