// Any bytes: no crash, and what is accepted can be walked, each byte of each weight is readable,
// and the entries survive being written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/fault_injection_testing.h"
#include "muster/pt2/program.h"
#include "muster/pt2/treatment.h"

namespace {

using muster::pt2::File;
using muster::pt2::ZipEntry;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string zipped(std::span<const ZipEntry> entries) {
  muster::FaultInjectionFileSystem files;
  auto file = files.create("w");
  MUSTER_CHECK(file.ok(), "in memory");
  const auto written = muster::pt2::write_zip(**file, entries);
  MUSTER_CHECK(written.ok(), "in memory");
  MUSTER_CHECK((*file)->close().ok(), "in memory");
  return *files.read("w");
}

void walk(const File& file) {
  size_t total = 0;  // so that every byte is read
  const auto& program = file.program();
  for (const auto& input : program.inputs) {
    for (const auto byte : input.weight.data) total += static_cast<size_t>(byte);
    MUSTER_CHECK(input.slot >= 0 && static_cast<size_t>(input.slot) < program.slots.size(), "slot");
    if (!input.weight.data.empty()) (void)input.weight.is_contiguous();
  }
  for (const auto& node : program.nodes) {
    total += node.place.text().size();
    for (const auto& output : node.outputs) {
      for (const auto slot : output.slots) {
        MUSTER_CHECK(slot >= 0 && static_cast<size_t>(slot) < program.slots.size(), "slot");
      }
    }
  }
  const std::vector<muster::pt2::Shape> shapes(program.assumptions.inputs.size(), {4, 5, 6});
  (void)muster::pt2::check_shapes(program.assumptions, "input", shapes);
  MUSTER_CHECK(total != SIZE_MAX, "the sum is used");
  const auto plan = muster::pt2::plan(file.program(), "input", {});
  if (plan.ok()) {
    MUSTER_CHECK(plan->nodes.size() == program.nodes.size(), "a treatment for each node");
    (void)muster::pt2::describe(program, *plan);
  }
  const std::string again = zipped(file.entries());
  const auto read = muster::pt2::read_zip(as_bytes(again), "again");
  MUSTER_CHECK(read.ok(), read.ok() ? "" : read.error().message());
  MUSTER_CHECK(read->size() == file.entries().size(), "same entries");
  for (size_t i = 0; i < read->size(); ++i) {
    const auto& before = file.entries()[i];
    const auto& after = (*read)[i];
    MUSTER_CHECK(before.name == after.name && std::equal(before.data.begin(), before.data.end(),
                                                         after.data.begin(), after.data.end()),
                 "same entry");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string bytes(input);
  // Most inputs are the JSON of a model, a config of weights and their bytes, in a sound zip file,
  // so that the fuzzer need not find one.
  if (input.starts_with('{')) {
    const auto first = input.find('\x01');
    const auto rest = first == std::string_view::npos ? "" : input.substr(first + 1);
    const auto second = rest.find('\x01');
    const auto weights = second == std::string_view::npos ? "" : rest.substr(second + 1);
    const std::vector<ZipEntry> entries = {
        {"m/models/model.json", as_bytes(input.substr(0, first))},
        {"m/data/weights/model_weights_config.json", as_bytes(rest.substr(0, second))},
        {"m/data/constants/model_constants_config.json", as_bytes(rest.substr(0, second))},
        {"m/data/weights/weight_0", as_bytes(weights)},
        {"m/data/constants/tensor_0", as_bytes(weights)}};
    bytes = zipped(entries);
  }
  const auto file = File::parse(as_bytes(bytes), "input");
  if (file.ok()) walk(*file);
  return 0;
}
