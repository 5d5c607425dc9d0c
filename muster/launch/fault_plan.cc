#include "muster/launch/fault_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "muster/base/random.h"
#include "muster/base/text.h"

namespace muster::launch {
namespace {

constexpr std::array<std::pair<std::string_view, FaultKind>, 15> kKinds = {{
    {"kill", FaultKind::kKill},
    {"pair", FaultKind::kPair},
    {"most", FaultKind::kMost},
    {"suspend", FaultKind::kSuspend},
    {"hang", FaultKind::kHang},
    {"leave", FaultKind::kLeave},
    {"join", FaultKind::kJoin},
    {"cut", FaultKind::kCut},
    {"slow-disk", FaultKind::kSlowDisk},
    {"flip", FaultKind::kFlip},
    {"lie", FaultKind::kLie},
    {"pause", FaultKind::kPause},
    {"restart", FaultKind::kRestart},
    {"kill-server", FaultKind::kKillServer},
    {"suspend-server", FaultKind::kSuspendServer},
}};
// At points: of workers, and of parameter servers.
constexpr std::array<std::pair<std::string_view, FaultKind>, 2> kAims = {{
    {"kill@", FaultKind::kAimed},
    {"kill-server@", FaultKind::kAimedServer},
}};
FaultKind kind_that_aims_at(FaultPoint point) {
  return is_server_point(point) ? FaultKind::kAimedServer : FaultKind::kAimed;
}
constexpr int kMostOfOne = 100000;

std::optional<Fault> find_fault(std::string_view name) {
  if (name == "stop") name = "suspend";  // its name until the first release
  for (const auto& [word, kind] : kKinds) {
    if (word == name) return Fault{kind, FaultPoint::kNone, 0, 0};
  }
  for (const auto& [aim, kind] : kAims) {
    if (!name.starts_with(aim)) continue;
    const auto point = find_fault_point(name.substr(aim.size()));
    if (point && kind_that_aims_at(*point) == kind) return Fault{kind, *point, 0, 0};
  }
  return std::nullopt;
}

std::string known_faults() {
  std::string text;
  for (const auto& [word, kind] : kKinds) text += fmt::format("{}, ", word);
  for (int i = 1; i < kFaultPoints; ++i) {
    const auto point = static_cast<FaultPoint>(i);
    text += Fault{kind_that_aims_at(point), point, 0, 0}.name();
    if (i + 1 < kFaultPoints) text += ", ";
  }
  return text;
}

}  // namespace

std::string Fault::name() const {
  for (const auto& [aim, of] : kAims) {
    if (of == kind) return fmt::format("{}{}", aim, fault_point_name(point));
  }
  for (const auto& [word, of] : kKinds) {
    if (of == kind) return std::string(word);
  }
  return "";
}

Result<std::vector<Fault>> parse_faults(std::string_view words) {
  std::vector<Fault> faults;
  for (const auto& word : split(words, ',')) {
    const auto colon = word.find(':');
    const auto name = std::string_view(word).substr(0, colon);
    const auto fault = find_fault(name);
    if (!fault) {
      return Error(ErrorKind::kUsage, "--faults: there is no '{}'; there are: {}", name,
                   known_faults());
    }
    int count = 1;
    if (colon != std::string::npos) {
      const char* end = word.data() + word.size();
      const auto [rest, failed] = std::from_chars(word.data() + colon + 1, end, count);
      if (failed != std::errc{} || rest != end || count < 0 || count > kMostOfOne) {
        return Error(ErrorKind::kUsage, "--faults: how many in '{}'? Say for example {}:5", word,
                     name);
      }
    }
    faults.insert(faults.end(), static_cast<size_t>(count), *fault);
  }
  return faults;
}

bool has_kind(const std::vector<Fault>& faults, FaultKind kind) {
  return std::ranges::find(faults, kind, &Fault::kind) != faults.end();
}

bool has_point(const std::vector<Fault>& faults, FaultPoint point) {
  return std::ranges::find(faults, point, &Fault::point) != faults.end();
}

void schedule_faults(std::vector<Fault>& faults, uint64_t seed, uint64_t steps) {
  RandomStream random(seed, Purpose::kUser);
  const uint64_t margin = steps / 20;
  for (auto& fault : faults) {
    const bool early = fault.kind == FaultKind::kPause || fault.kind == FaultKind::kRestart;
    const uint64_t last = early ? steps / 2 : steps - 3 * margin;
    fault.step = margin + random.below(std::max<uint64_t>(1, last - margin));
    fault.draw = random.next_u64();
  }
  std::ranges::sort(faults, {},
                    [](const Fault& fault) { return std::pair(fault.step, fault.draw); });
}

}  // namespace muster::launch
