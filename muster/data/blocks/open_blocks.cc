#include "muster/data/blocks/open_blocks.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/clock.h"
#include "muster/base/fd.h"
#include "muster/base/text.h"
#include "muster/base/thread.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/make_index.h"
#include "muster/data/blocks/partial_index.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"
#include "muster/store/url.h"

namespace muster::data {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kTell = std::chrono::seconds(1);
constexpr std::string_view kExtension = ".index";

Moment now() { return std::chrono::steady_clock::now(); }

// Says something at most once a second, and asks whether to go on.
class Teller {
 public:
  explicit Teller(const BlockSetup& setup) : setup_(setup) {}
  template <typename Text>
  bool go_on(const Text& text) {
    if (setup_.tell && now() - told_ >= kTell) {
      told_ = now();
      setup_.tell(text());
    }
    return !setup_.keep_waiting || setup_.keep_waiting();
  }

 private:
  const BlockSetup& setup_;
  Moment told_ = now();  // so that what is quick is not told
};

// Waits until no other process holds the lock. Released when the descriptor is closed, also if the
// process is killed. No descriptor: locks do not work here.
Result<Fd> lock_file(const std::string& path, Teller& teller) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open and fcntl are
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return Fd();
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg)
  while (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Fd();
    const auto text = [] { return std::string("another worker indexes the data"); };
    if (!teller.go_on(text)) {
      return Error(ErrorKind::kInterrupted, "ended while another worker indexed the data");
    }
    std::this_thread::sleep_for(kPoll);
  }
  return fd;
}

// By a thread of its own, which is stopped when `teller` says so: a server may not answer.
Result<std::vector<store::Object>> list_objects(store::Store& store, const std::string& address,
                                                Teller& teller) {
  std::mutex mutex;
  std::condition_variable listed;
  std::optional<Result<std::vector<store::Object>>> found;  // guarded by mutex
  std::stop_source stop;
  const Thread thread("list", [&] {
    auto result = store.list_stoppable(address, stop.get_token());
    const std::lock_guard lock(mutex);
    found = std::move(result);
    listed.notify_all();
  });
  const auto text = [&] { return fmt::format("listing '{}'", store::printable(address)); };
  std::unique_lock lock(mutex);
  while (!listed.wait_for(lock, kPoll, [&] { return found.has_value(); })) {
    if (!stop.stop_requested() && !teller.go_on(text)) stop.request_stop();
  }
  if (stop.stop_requested()) {
    return Error(ErrorKind::kInterrupted, "ended while the data was listed");
  }
  return *std::move(found);
}

// Whether the objects of the index are these, whose versions it then takes.
bool take_versions(BlockIndex& index, const std::vector<store::Object>& objects) {
  if (index.objects.size() != objects.size()) return false;
  for (size_t i = 0; i < objects.size(); ++i) {
    if (index.objects[i].name != objects[i].name || index.objects[i].size != objects[i].size) {
      return false;
    }
  }
  index.objects = objects;
  return true;
}

// What is saved: addresses without signatures.
std::string bytes_to_save(BlockIndex index) {
  for (auto& object : index.objects) object.name = store::printable(object.name);
  return save_index(index);
}

using Objects = std::optional<std::vector<store::Object>>;

// The index in this file; nothing if there is none, or it is of other files. `objects`: as listed
// now, if they were.
Result<std::optional<BlockIndex>> load_saved(FileSystem& files, const std::string& path,
                                             const config::SourceOptions& options,
                                             const Objects& objects) {
  if (!files.exists(path)) return std::optional<BlockIndex>();
  MUSTER_TRY(const std::string bytes, files.read(path));
  auto index = load_index(bytes);
  if (!index.ok()) return std::move(index).error().context("'{}'", path);
  if (index->format != options.format) {
    return Error(ErrorKind::kData, "'{}' is an index of {}, not of {}; delete it", path,
                 index->format, options.format);
  }
  // An HTTP address is that of its only object, with its signature.
  const auto address = store::parse_address(options.path);
  if (address.ok() && address->scheme == store::Scheme::kHttp && index->objects.size() == 1) {
    index->objects[0].name = options.path;
  }
  if (objects && !take_versions(*index, *objects)) return std::optional<BlockIndex>();
  return std::optional(*std::move(index));
}

// Without the parts of a presigned URL that change when it is signed again: S3's and Google's,
// those of their older kind, and Azure's. Others may say which data it is.
std::string without_signature(const std::string& address) {
  static constexpr std::string_view kParts[] = {
      "AWSAccessKeyId", "Expires", "Policy", "Signature", "se", "sig", "ske", "skt", "st"};
  const size_t query = address.find('?');
  if (!address.starts_with("http") || query == std::string::npos) return address;
  std::string kept = address.substr(0, query);
  for (const std::string& part : split(address.substr(query + 1), '&')) {
    const std::string name = part.substr(0, part.find('='));
    const bool signs = name.starts_with("X-Amz-") || name.starts_with("X-Goog-") ||
                       std::ranges::find(kParts, name) != std::end(kParts);
    if (!signs) kept.append("?").append(part);
  }
  return kept;
}

// "abc-def.index" for "abc.index", where def says which files these are.
std::string name_for(const std::string& path, const std::vector<store::Object>& objects) {
  Hasher hasher;
  for (const auto& object : objects) {
    hasher.add(object.name.c_str(), object.name.size() + 1);
    hasher.add(&object.size, sizeof(object.size));
  }
  return fmt::format("{}-{}{}", path.substr(0, path.size() - kExtension.size()),
                     hasher.finish().hex(), kExtension);
}

// Where the index is, or will be, and what is there already. An index of other files stays: it is
// that of a run, whose other workers have those files. The index of these has a name of its own.
struct Place {
  std::string path;
  std::optional<BlockIndex> saved;
};
Result<Place> look_up(const config::SourceOptions& options, const BlockSetup& setup,
                      const Objects& objects) {
  Place place = {setup.indexes + "/" + index_name(options, setup.block), std::nullopt};
  if (setup.index_again || !setup.files->exists(place.path)) return place;
  MUSTER_TRY(place.saved, load_saved(*setup.files, place.path, options, objects));
  if (place.saved || !objects) return place;
  place.path = name_for(place.path, *objects);
  MUSTER_TRY(place.saved, load_saved(*setup.files, place.path, options, objects));
  return place;
}

// A lane has several blocks in memory at a time, and mixes samples of few blocks badly.
Status check_lengths(const BlockIndex& index, const BlockFormat& format, uint64_t longest) {
  if (!format.has_own_blocks() || longest == 0) return {};
  for (size_t i = 0; i < index.blocks.size(); ++i) {
    if (index.blocks[i].length > longest) return too_long(index.describe(i), longest);
  }
  return {};
}

std::string describe(const std::string& address, const IndexProgress& progress) {
  return fmt::format("indexing '{}': {} of {} files, {} of {}", store::printable(address),
                     with_commas(progress.objects_done), with_commas(progress.objects),
                     human_bytes(static_cast<double>(progress.bytes_done)),
                     human_bytes(static_cast<double>(progress.bytes)));
}

}  // namespace

BlockSetup setup_of(const config::DataOptions& options) {
  BlockSetup setup;
  setup.indexes = options.index;
  setup.block = static_cast<uint64_t>(options.block);
  setup.longest_block = static_cast<uint64_t>(options.window);
  setup.stream.fetch.memory = static_cast<uint64_t>(options.memory);
  setup.stream.fetch.threads = static_cast<int>(options.requests);
  setup.stream.cache = options.cache;
  if (options.cache_size > 0) setup.stream.cache_bytes = static_cast<uint64_t>(options.cache_size);
  return setup;
}

std::shared_ptr<store::Store> open_patient_store() {
  static const SystemClock clock;
  return std::make_shared<store::RetryStore>(store::open_store(), clock);
}

std::string index_name(const config::SourceOptions& options, uint64_t block) {
  Hasher hasher;
  const auto text = [&](std::string_view value) {
    const uint64_t size = value.size();
    hasher.add(&size, sizeof(size));
    hasher.add(value.data(), value.size());
  };
  text(options.format);
  text(without_signature(options.path));
  // What else an index follows from. Built-in formats decode by their other options, and do not cut
  // by them, but for formats of columns, which are cut by those that are read; what a program's own
  // format does is not known.
  const bool by_columns = options.format == "parquet" || options.format == "arrow";
  const bool any = by_columns || !builtin_block_formats().contains(options.format);
  if (any || options.format == "csv") {
    text(options.label);
    text(options.separator);
    text(options.header ? "header" : "");
  }
  if (any) text(options.args.to_line());
  hasher.add(&block, sizeof(block));
  return hasher.finish().hex() + std::string(kExtension);
}

namespace {

Result<FoundIndex> find_or_make_index(const config::SourceOptions& options,
                                      const BlockFormat& format, store::Store& store,
                                      const BlockSetup& setup) {
  Teller teller(setup);
  Objects objects;
  if (store::is_local(options.path)) {
    MUSTER_TRY(objects, list_objects(store, options.path, teller));
  }
  const bool saves = !setup.indexes.empty();
  std::string path;
  std::string locked;
  Fd lock;
  if (saves) {
    MUSTER_CHECK(setup.files != nullptr, "where indexes are saved");
    MUSTER_TRY(auto place, look_up(options, setup, objects));
    if (place.saved) return FoundIndex{*std::move(place.saved), std::move(place.path)};
    if (setup.files->create_directories(setup.indexes).ok()) {
      MUSTER_TRY(lock, lock_file(place.path + ".lock", teller));
      locked = place.path;
    }
    // Another worker may have made it meanwhile, or one of other files.
    MUSTER_TRY(place, look_up(options, setup, objects));
    if (place.saved) return FoundIndex{*std::move(place.saved), std::move(place.path)};
    path = std::move(place.path);
  }
  if (!objects) {
    MUSTER_TRY(objects, list_objects(store, options.path, teller));
  }
  if (objects->empty()) {
    return Error(ErrorKind::kData, "nothing matches '{}'", store::printable(options.path));
  }
  // Only with a lock of its own: what two processes write at a time is of use to none.
  std::optional<PartialIndex> partial;
  if (lock && locked == path) partial.emplace(*setup.files, path + ".partial", options.format);
  MUSTER_TRY(auto index,
             make_index(format, options.format, *std::move(objects), store,
                        {.block = setup.block,
                         .longest_block = format.has_own_blocks() ? setup.longest_block : 0,
                         .threads = setup.stream.fetch.threads,
                         .partial = partial ? &*partial : nullptr,
                         .progress = [&](const IndexProgress& progress) {
                           return teller.go_on([&] { return describe(options.path, progress); });
                         }}));
  // If it cannot be saved, the others make their own.
  if (saves && write_file_atomically(*setup.files, path, bytes_to_save(index)).ok() && partial) {
    partial->remove();
  }
  return FoundIndex{std::move(index), std::move(path)};
}

}  // namespace

Result<FoundIndex> find_index(const config::SourceOptions& options, const BlockFormat& format,
                              store::Store& store, const BlockSetup& setup) {
  MUSTER_TRY(auto found, find_or_make_index(options, format, store, setup));
  MUSTER_RETURN_IF_ERROR(check_lengths(found.index, format, setup.longest_block));
  return found;
}

Result<std::unique_ptr<Dataset>> open_blocks(const config::SourceOptions& options,
                                             std::unique_ptr<BlockFormat> format,
                                             const BlockSetup& setup) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob, "the format {} needs `path`", options.format);
  }
  const config::SourceOptions defaults;
  if (options.part != defaults.part || options.limit != defaults.limit) {
    return Error(ErrorKind::kJob,
                 "`part` and `limit` are not possible for data that is read by blocks");
  }
  const auto store = setup.store != nullptr ? setup.store : open_patient_store();
  MUSTER_TRY(auto found, find_index(options, *format, *store, setup));
  MUSTER_RETURN_IF_ERROR(format->set_about(found.index.about));
  MUSTER_CHECK(setup.files != nullptr || setup.stream.cache.empty(), "where the cache is");
  const auto own_files = setup.files == nullptr ? posix_file_system() : nullptr;
  FileSystem& files = setup.files != nullptr ? *setup.files : *own_files;
  MUSTER_TRY(auto data,
             BlockDataset::open(std::make_shared<const BlockIndex>(std::move(found.index)),
                                std::move(format), store, setup.stream, files, setup.keep_waiting));
  return std::unique_ptr<Dataset>(std::move(data));
}

}  // namespace muster::data
