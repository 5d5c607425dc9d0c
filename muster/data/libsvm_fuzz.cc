// Any bytes as lines of ids: read or refused with a sentence, never a crash. The first byte sets
// the options.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/data/batch.h"
#include "muster/data/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::data;
  using muster::config::Node;
  if (size < 2) return 0;
  muster::config::SourceOptions options;
  std::vector<std::pair<std::string, Node>> args;
  if ((data[0] & 7) != 0) {
    args.emplace_back("features", Node::scalar(std::to_string(data[0] & 7)));
  }
  if ((data[0] & 16) != 0) args.emplace_back("values", Node::scalar("true"));
  options.args = Node::map(std::move(args));
  if ((data[0] & 8) != 0) options.part = {0.25, 1};
  auto reader =
      ByteReader::from_memory(std::as_bytes(std::span(data, size)).subspan(1), "x.libsvm");
  if (!reader.ok()) return 0;
  auto dataset = read_libsvm(*std::move(reader), options);
  if (!dataset.ok()) return 0;
  Batch batch;
  (void)read_range(**dataset, 0, (*dataset)->size(), batch);
  (void)(*dataset)->hash();
  return 0;
}
