#include "muster/data/blocks/column_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

namespace muster::data {
namespace {

// Ours, before those of an installed one.
std::vector<std::string> places() {
  std::vector<std::string> result;
  std::error_code why;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", why);
  if (!why) {
    const auto prefix = program.parent_path().parent_path();
    result.push_back((prefix / "lib/muster" / kColumnPluginFile).string());
  }
  result.emplace_back(kColumnPluginFile);
  return result;
}

Result<const ColumnPlugin*> load() {
  // libarrow has a jemalloc of its own, which would start a thread as it is loaded; what Arrow
  // allocates for itself comes from malloc, as everything else here does. Settings of the user
  // stay. NOLINTBEGIN(concurrency-mt-unsafe): nothing here reads the environment while data is
  // opened
  setenv("JE_ARROW_MALLOC_CONF", "background_thread:false", 0);
  setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 0);
  // NOLINTEND(concurrency-mt-unsafe)
  void* library = nullptr;
  std::string why;
  for (const auto& place : places()) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    // Of a file that is there, why it does not load; of others nothing is to be said.
    const char* error = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    if (why.empty() && error != nullptr && std::filesystem::exists(place)) why = error;
  }
  if (library == nullptr && why.empty()) {
    return Error(ErrorKind::kMachine,
                 "{} is not there: run scripts/fetch_arrow.sh, then build Muster again",
                 kColumnPluginFile);
  }
  if (library == nullptr) {
    return Error(ErrorKind::kMachine, "{} cannot be loaded ({}): build Muster again",
                 kColumnPluginFile, why);
  }
  auto* version =
      reinterpret_cast<MusterColumnPluginVersion*>(dlsym(library, kColumnPluginVersionName));
  auto* plugin = reinterpret_cast<MusterColumnPlugin*>(dlsym(library, kColumnPluginName));
  if (version == nullptr || plugin == nullptr || version() != kColumnPluginVersion) {
    return Error(ErrorKind::kMachine, "{} is of another version: build Muster again",
                 kColumnPluginFile);
  }
  return plugin();
}

}  // namespace

Result<const ColumnPlugin*> load_column_plugin(std::string_view format) {
  static std::mutex mutex;
  static const ColumnPlugin* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    auto plugin = load();
    if (!plugin.ok()) return std::move(plugin).error().context("the format {}", format);
    loaded = *plugin;
  }
  return loaded;
}

}  // namespace muster::data
