#include "muster/data/blocks/make_index.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/base/thread.h"
#include "muster/data/permutation.h"
#include "muster/store/url.h"

namespace muster::data {
namespace {

constexpr auto kTell = std::chrono::milliseconds(100);

using Known = std::shared_ptr<const ObjectPart>;

class Indexer {
 public:
  Indexer(const BlockFormat& format, const std::vector<store::Object>& objects, store::Store& store,
          const IndexOptions& options)
      : format_(format),
        objects_(objects),
        store_(store),
        options_(options),
        parts_(objects.size()) {
    for (const auto& object : objects_) bytes_ += object.size;
  }

  // The parts, by object. Of several errors: that of the first object whose indexing failed, rather
  // than of one that was only stopped because of that, or because the caller ended it.
  Result<std::vector<Known>> run() {
    const auto wanted = std::min<size_t>(static_cast<size_t>(std::max(1, options_.threads)),
                                         std::max<size_t>(1, objects_.size()));
    running_ = wanted;
    std::vector<Thread> threads;
    threads.reserve(wanted);
    for (size_t i = 0; i < wanted; ++i) threads.emplace_back("index", [this] { index_objects(); });
    const bool interrupted = !watch();
    if (interrupted) stop_.request_stop();
    threads.clear();  // joins
    // Without a part: another object failed before its turn.
    const auto failed = [](const auto& part) { return part && !part->ok(); };
    const auto first = std::ranges::find_if(parts_, [&](const auto& part) {
      return failed(part) && part->error().kind() != ErrorKind::kInterrupted;
    });
    if (first != parts_.end()) return std::move(**first).error();
    if (interrupted || std::ranges::any_of(parts_, failed)) {
      return Error(ErrorKind::kInterrupted, "ended while the data was indexed");
    }
    std::vector<Known> parts;
    parts.reserve(parts_.size());
    for (auto& part : parts_) parts.push_back(**std::move(part));
    return parts;
  }

 private:
  // False: told to end.
  bool watch() {
    std::unique_lock lock(mutex_);
    while (running_ > 0) {
      done_.wait_for(lock, kTell);
      if (!options_.progress) continue;
      const IndexProgress progress = {.objects = objects_.size(),
                                      .objects_done = objects_done_,
                                      .bytes = bytes_,
                                      .bytes_done = bytes_done_};
      lock.unlock();
      const bool go_on = options_.progress(progress);
      lock.lock();
      if (!go_on) return false;
    }
    return true;
  }

  void index_objects() {
    for (size_t i = next_++; i < objects_.size() && !failed_; i = next_++) {
      auto part = known_or_indexed(objects_[i]);
      if (!part.ok()) {
        failed_ = true;
        stop_.request_stop();  // what the others read would not be used, and may take hours
      }
      parts_[i] = std::move(part);
      ++objects_done_;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    done_.notify_all();
  }

  Result<Known> known_or_indexed(const store::Object& object) {
    if (options_.partial != nullptr) {
      if (auto known = options_.partial->find(object)) {
        MUSTER_RETURN_IF_ERROR(check_lengths(store::printable(object.name), known->extents));
        for (const Extent& extent : known->extents) bytes_done_ += extent.length;
        return known;
      }
    }
    MUSTER_TRY(auto part, index(object));
    if (options_.partial != nullptr) options_.partial->add(object, part);
    return std::make_shared<const ObjectPart>(std::move(part));
  }

  Status check_lengths(std::string_view name, std::span<const Extent> extents) const {
    if (options_.longest_block == 0) return {};
    for (size_t i = 0; i < extents.size(); ++i) {
      if (extents[i].length <= options_.longest_block) continue;
      return too_long(
          fmt::format("block {} of '{}', {} bytes,", i, name, with_commas(extents[i].length)),
          options_.longest_block);
    }
    return {};
  }

  // Ends between two reads also with a store that cannot interrupt one.
  Status read(const store::Object& object, uint64_t offset, std::span<std::byte> into) {
    if (stop_.stop_requested()) return Error(ErrorKind::kInterrupted, "stopped");
    return store_.read_stoppable(object, offset, into, stop_.get_token());
  }

  Result<ObjectPart> index(const store::Object& object) {
    const ObjectReader reader = {.name = store::printable(object.name),
                                 .size = object.size,
                                 .read = [&](uint64_t offset, std::span<std::byte> into) {
                                   return read(object, offset, into);
                                 }};
    ObjectPart part;
    MUSTER_TRY(part.extents, format_.cut(reader, options_.block));
    if (part.extents.empty()) return part;
    MUSTER_RETURN_IF_ERROR(check_lengths(reader.name, part.extents));
    MUSTER_TRY(part.about, format_.about(reader));
    MUSTER_TRY(part.notes, format_.notes(reader));
    MUSTER_CHECK(part.notes.empty() || part.notes.size() == part.extents.size(),
                 "a note for each block");
    std::vector<std::byte> bytes;
    part.hashes.reserve(part.extents.size());
    for (const Extent& extent : part.extents) {
      bytes.resize(extent.length);
      MUSTER_RETURN_IF_ERROR(reader.read(extent.offset, bytes));
      part.hashes.push_back(hash128(bytes));
      bytes_done_ += extent.length;
    }
    return part;
  }

  const BlockFormat& format_;
  const std::vector<store::Object>& objects_;
  store::Store& store_;
  const IndexOptions& options_;
  uint64_t bytes_ = 0;
  std::stop_source stop_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<uint64_t> objects_done_ = 0;
  std::atomic<uint64_t> bytes_done_ = 0;
  // By object; each is written by the thread that has the object, and read when all have ended.
  std::vector<std::optional<Result<Known>>> parts_;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t running_ = 0;  // threads; guarded by mutex_
};

}  // namespace

Error too_long(std::string_view block, uint64_t longest) {
  return Error(ErrorKind::kData,
               "{} is longer than data.window, {}: write the files with shorter blocks (`muster "
               "data pack` does), or raise data.window",
               block, human_bytes(static_cast<double>(longest)));
}

Result<BlockIndex> make_index(const BlockFormat& format, std::string name,
                              std::vector<store::Object> objects, store::Store& store,
                              const IndexOptions& options) {
  MUSTER_TRY(const auto parts, Indexer(format, objects, store, options).run());
  BlockIndex index;
  index.format = std::move(name);
  index.objects = std::move(objects);
  if (index.objects.size() > std::numeric_limits<uint32_t>::max()) {
    return Error(ErrorKind::kData, "{} files are too many; pack them into larger ones",
                 with_commas(index.objects.size()));
  }
  std::optional<size_t> first;  // the first object with samples
  uint64_t samples = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ObjectPart& part = *parts[i];
    if (part.extents.empty()) continue;
    if (!first) {
      first = i;
      index.about = part.about;
    } else if (part.about != index.about) {
      return Error(ErrorKind::kData,
                   "'{}' has other columns than '{}'; all files of a data set must have the same",
                   store::printable(index.objects[i].name),
                   store::printable(index.objects[*first].name));
    }
    for (size_t b = 0; b < part.extents.size(); ++b) {
      const Extent& extent = part.extents[b];
      index.blocks.push_back({.object = static_cast<uint32_t>(i),
                              .offset = extent.offset,
                              .length = extent.length,
                              .first = samples,
                              .count = extent.count,
                              .hash = part.hashes[b]});
      samples += extent.count;
    }
    index.notes.insert(index.notes.end(), part.notes.begin(), part.notes.end());
  }
  if (!first) {
    return Error(ErrorKind::kData, "{} no samples",
                 index.objects.size() == 1
                     ? fmt::format("'{}' has", store::printable(index.objects[0].name))
                     : fmt::format("these {} files have", with_commas(index.objects.size())));
  }
  if (samples > Permutation::kMaxSize) {
    return Error(ErrorKind::kData, "the data has more than 2^40 samples; use fewer files");
  }
  if (index.blocks.size() >= std::numeric_limits<uint32_t>::max()) {
    return Error(ErrorKind::kData, "the data has more than 2^32 blocks; raise data.block");
  }
  return index;
}

}  // namespace muster::data
