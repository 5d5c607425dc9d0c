#include "muster/data/blocks/partial_index.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "muster/base/check.h"
#include "muster/store/url.h"

namespace muster::data {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t);

// Names are saved without signatures, as in an index.
BlockIndex index_of(const std::string& format, const store::Object& object,
                    const ObjectPart& part) {
  MUSTER_CHECK(part.hashes.size() == part.extents.size(), "a hash for each block");
  BlockIndex index;
  index.format = format;
  index.about = part.about;
  index.objects = {object};
  index.objects[0].name = store::printable(object.name);
  uint64_t first = 0;
  for (size_t b = 0; b < part.extents.size(); ++b) {
    const Extent& extent = part.extents[b];
    index.blocks.push_back({.object = 0,
                            .offset = extent.offset,
                            .length = extent.length,
                            .first = first,
                            .count = extent.count,
                            .hash = part.hashes[b]});
    first += extent.count;
  }
  index.notes = part.notes;
  return index;
}

ObjectPart part_of(BlockIndex index) {
  ObjectPart part;
  part.extents.reserve(index.blocks.size());
  part.hashes.reserve(index.blocks.size());
  for (const Block& block : index.blocks) {
    part.extents.push_back({.offset = block.offset, .length = block.length, .count = block.count});
    part.hashes.push_back(block.hash);
  }
  part.about = std::move(index.about);
  part.notes = std::move(index.notes);
  return part;
}

}  // namespace

PartialIndex::PartialIndex(FileSystem& files, std::string path, std::string format)
    : files_(files), path_(std::move(path)), format_(std::move(format)) {
  if (files_.exists(path_)) {
    const auto bytes = files_.read(path_);
    if (!bytes.ok()) return;
    const size_t whole = load(*bytes);
    // Entries behind a torn one would never be found.
    if (whole < bytes->size() &&
        !write_file_atomically(files_, path_, std::string_view(*bytes).substr(0, whole)).ok()) {
      return;
    }
  }
  auto file = files_.open_to_append(path_);
  if (file.ok()) file_ = *std::move(file);
}

size_t PartialIndex::load(std::string_view bytes) {
  size_t at = 0;
  while (bytes.size() - at >= kLengthBytes) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, kLengthBytes);
    if (length > bytes.size() - at - kLengthBytes) break;
    auto index = load_index(bytes.substr(at + kLengthBytes, length));
    if (!index.ok() || index->objects.size() != 1) break;
    at += kLengthBytes + length;
    if (index->format != format_) continue;
    store::Object object = std::move(index->objects[0]);
    known_.insert_or_assign(
        std::move(object.name),
        Known{.size = object.size,
              .version = std::move(object.version),
              .part = std::make_shared<const ObjectPart>(part_of(*std::move(index)))});
  }
  return at;
}

std::shared_ptr<const ObjectPart> PartialIndex::find(const store::Object& object) const {
  if (object.version.empty()) return nullptr;
  const auto found = known_.find(store::printable(object.name));
  if (found == known_.end()) return nullptr;
  const Known& known = found->second;
  return known.size == object.size && known.version == object.version ? known.part : nullptr;
}

void PartialIndex::add(const store::Object& object, const ObjectPart& part) {
  if (object.version.empty()) return;
  const std::string entry = save_index(index_of(format_, object, part));
  const uint64_t length = entry.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  bytes += entry;
  const std::lock_guard lock(mutex_);
  if (file_ != nullptr && !file_->append(bytes).ok()) file_.reset();
}

void PartialIndex::remove() {
  const std::lock_guard lock(mutex_);
  file_.reset();
  (void)files_.remove_all(path_);
}

}  // namespace muster::data
