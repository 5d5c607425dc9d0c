#include "tools/muster/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "muster/base/text.h"
#include "muster/base/thread.h"

namespace muster::cli {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The value of the first "key : value" line.
std::string field(std::string_view text, std::string_view key) {
  for (const auto& line : split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (trim(std::string_view(line).substr(0, colon)) != key) continue;
    return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return "";
}

double number_at_start(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

uint64_t kilobytes(std::string_view text, std::string_view key) {
  return static_cast<uint64_t>(number_at_start(field(text, key))) * 1024;
}

std::vector<std::string> useful_instructions(std::string_view cpuinfo) {
  std::string flags = field(cpuinfo, "flags");            // x86
  if (flags.empty()) flags = field(cpuinfo, "Features");  // arm
  const auto words = split(flags, ' ');
  const std::set<std::string> there(words.begin(), words.end());
  constexpr std::array kKnown = {std::pair("avx2", "AVX2"),
                                 std::pair("avx512f", "AVX-512"),
                                 std::pair("avx512_bf16", "AVX-512 bf16"),
                                 std::pair("amx_bf16", "AMX bf16"),
                                 std::pair("asimd", "NEON"),
                                 std::pair("sve", "SVE"),
                                 std::pair("bf16", "bf16")};
  std::vector<std::string> found;
  for (const auto& [flag, name] : kKnown) {
    if (there.contains(flag)) found.emplace_back(name);
  }
  return found;
}

// The control group this process is in, as seen inside its container.
std::string control_group() {
  for (const auto& line : split(contents("/proc/self/cgroup"), '\n')) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "/sys/fs/cgroup";
}

std::string first_contents(const std::string& file) {
  const std::string own = contents(control_group() + "/" + file);
  return own.empty() ? contents("/sys/fs/cgroup/" + file) : own;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// A file that is gone when this goes.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory) : path_(directory + "/.muster-doctor-XXXXXX") {
    descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
  }
  ~ScratchFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  bool ok() const { return descriptor_ >= 0; }
  // All of it, on stable storage.
  bool write_and_sync(const std::vector<char>& data) const {
    for (size_t done = 0; done < data.size();) {
      const ssize_t wrote = write(descriptor_, data.data() + done, data.size() - done);
      if (wrote < 0) return false;
      done += static_cast<size_t>(wrote);
    }
    return fsync(descriptor_) == 0;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

double Machine::effective_cores() const {
  const double usable = std::max(1, usable_cores);
  return quota > 0 ? std::min(usable, quota) : usable;
}

Machine parse_machine(const MachineTexts& texts) {
  Machine machine;
  machine.processor = field(texts.cpuinfo, "model name");
  machine.instructions = useful_instructions(texts.cpuinfo);
  for (const auto& line : split(texts.cpuinfo, '\n')) {
    if (line.starts_with("processor")) ++machine.cores;
  }
  machine.memory = kilobytes(texts.meminfo, "MemTotal");
  machine.memory_free = kilobytes(texts.meminfo, "MemAvailable");
  machine.load = number_at_start(texts.loadavg);
  const auto quota = split(trim(texts.cpu_max), ' ');  // "150000 100000", or "max 100000"
  if (quota.size() == 2 && number_at_start(quota[1]) > 0) {
    machine.quota = number_at_start(quota[0]) / number_at_start(quota[1]);
  }
  machine.memory_limit = static_cast<uint64_t>(number_at_start(trim(texts.memory_max)));
  return machine;
}

Machine look_at_machine() {
  MachineTexts texts;
  texts.cpuinfo = contents("/proc/cpuinfo");
  texts.meminfo = contents("/proc/meminfo");
  texts.loadavg = contents("/proc/loadavg");
  texts.cpu_max = first_contents("cpu.max");
  texts.memory_max = first_contents("memory.max");
  Machine machine = parse_machine(texts);
  machine.usable_cores = usable_cores();
  machine.cores = std::max(machine.cores, machine.usable_cores);
  return machine;
}

Disk measure_disk(const std::string& directory) {
  namespace fs = std::filesystem;
  Disk disk;
  std::error_code failed;
  fs::path path = fs::absolute(directory, failed).lexically_normal();
  while (!fs::exists(path, failed) && path != path.parent_path()) path = path.parent_path();
  disk.path = path.string();
  struct statvfs space{};
  if (statvfs(disk.path.c_str(), &space) == 0) {
    disk.free_bytes = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  }
  const ScratchFile file(disk.path);
  const auto problem = [&] {
    return io_error(errno, fmt::format("cannot write in '{}'", disk.path)).message();
  };
  if (!file.ok()) {
    disk.problem = problem();
    return disk;
  }
  std::vector<double> times;
  const std::vector<char> page(4096, 'm');
  for (int i = 0; i < 9; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!file.write_and_sync(page)) {
      disk.problem = problem();
      return disk;
    }
    times.push_back(milliseconds_since(start));
  }
  std::ranges::nth_element(times, times.begin() + 4);
  disk.sync_ms = times[4];
  const std::vector<char> bulk(16 << 20, 'm');
  const auto start = std::chrono::steady_clock::now();
  if (!file.write_and_sync(bulk)) {
    disk.problem = problem();
    return disk;
  }
  disk.write_mb_per_s = static_cast<double>(bulk.size()) / 1e3 / milliseconds_since(start);
  return disk;
}

}  // namespace muster::cli
