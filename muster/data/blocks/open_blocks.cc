#include "muster/data/blocks/open_blocks.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/clock.h"
#include "muster/base/fd.h"
#include "muster/base/text.h"
#include "muster/data/blocks/make_index.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"
#include "muster/store/url.h"

namespace muster::data {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kTell = std::chrono::seconds(1);

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

// The saved index; nothing if there is none, or it is of other files. `objects`: as listed now, if
// they were.
Result<std::optional<BlockIndex>> load_saved(
    FileSystem& files, const std::string& path,
    const std::optional<std::vector<store::Object>>& objects, const std::string& format) {
  if (!files.exists(path)) return std::optional<BlockIndex>();
  MUSTER_TRY(const std::string bytes, files.read(path));
  auto index = load_index(bytes);
  if (!index.ok()) return std::move(index).error().context("'{}'", path);
  if (index->format != format) {
    return Error(ErrorKind::kData, "'{}' is an index of {}, not of {}; delete it", path,
                 index->format, format);
  }
  if (objects && !take_versions(*index, *objects)) return std::optional<BlockIndex>();
  return std::optional(*std::move(index));
}

// A lane has several blocks in memory at a time, and mixes samples of few blocks badly.
Status check_lengths(const BlockIndex& index, const BlockFormat& format, uint64_t longest) {
  if (!format.has_own_blocks() || longest == 0) return {};
  for (size_t i = 0; i < index.blocks.size(); ++i) {
    if (index.blocks[i].length <= longest) continue;
    return Error(ErrorKind::kData,
                 "{} is longer than data.window, {}: write the files with shorter blocks (`muster "
                 "data pack` does), or raise data.window",
                 index.describe(i), human_bytes(static_cast<double>(longest)));
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
  // The store sends second requests itself (store/retry.h).
  setup.stream.fetch.second_request = Duration{};
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
  text(options.path);
  text(options.label);
  text(options.separator);
  text(options.header ? "header" : "");
  text(options.args.to_line());
  hasher.add(&block, sizeof(block));
  return hasher.finish().hex() + ".index";
}

Result<BlockIndex> find_index(const config::SourceOptions& options, const BlockFormat& format,
                              store::Store& store, const BlockSetup& setup) {
  Teller teller(setup);
  std::optional<std::vector<store::Object>> objects;
  if (store::is_local(options.path)) {
    MUSTER_TRY(objects, store.list(options.path));
  }
  const bool saves = !setup.indexes.empty();
  const std::string path = setup.indexes + "/" + index_name(options, setup.block);
  Fd lock;
  if (saves) {
    MUSTER_CHECK(setup.files != nullptr, "where indexes are saved");
    if (!setup.index_again) {
      MUSTER_TRY(auto saved, load_saved(*setup.files, path, objects, options.format));
      if (saved) return *std::move(saved);
    }
    if (setup.files->create_directories(setup.indexes).ok()) {
      MUSTER_TRY(lock, lock_file(path + ".lock", teller));
    }
    if (!setup.index_again) {  // another worker may have made it meanwhile
      MUSTER_TRY(auto saved, load_saved(*setup.files, path, objects, options.format));
      if (saved) return *std::move(saved);
    }
  }
  if (!objects) {
    MUSTER_TRY(objects, store.list(options.path));
  }
  if (objects->empty()) {
    return Error(ErrorKind::kData, "nothing matches '{}'", store::printable(options.path));
  }
  MUSTER_TRY(auto index,
             make_index(format, options.format, *std::move(objects), store,
                        {.block = setup.block,
                         .threads = setup.stream.fetch.threads,
                         .progress = [&](const IndexProgress& progress) {
                           return teller.go_on([&] { return describe(options.path, progress); });
                         }}));
  // If it cannot be saved, the others make their own.
  if (saves) (void)write_file_atomically(*setup.files, path, save_index(index));
  return index;
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
  MUSTER_RETURN_IF_ERROR(check_lengths(found, *format, setup.longest_block));
  MUSTER_RETURN_IF_ERROR(format->set_about(found.about));
  MUSTER_CHECK(setup.files != nullptr || setup.stream.cache.empty(), "where the cache is");
  const auto own_files = setup.files == nullptr ? posix_file_system() : nullptr;
  FileSystem& files = setup.files != nullptr ? *setup.files : *own_files;
  MUSTER_TRY(auto data,
             BlockDataset::open(std::make_shared<const BlockIndex>(std::move(found)),
                                std::move(format), store, setup.stream, files, setup.keep_waiting));
  return std::unique_ptr<Dataset>(std::move(data));
}

}  // namespace muster::data
