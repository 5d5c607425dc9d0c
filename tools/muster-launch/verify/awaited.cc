#include "tools/muster-launch/verify/awaited.h"

#include <algorithm>

namespace muster::cli {

std::vector<Awaited::Back> Awaited::seen(const std::vector<Target>& members) {
  std::vector<Back> back;
  std::erase_if(out_, [&](const Out& out) {
    const bool in = std::ranges::any_of(members, [&](const Target& member) {
      return member.id == out.target.id && member.incarnation != out.target.incarnation;
    });
    if (in) back.push_back({out.fault, out.target.id, true});
    return in;
  });
  for (size_t i = 0; i < back.size(); ++i) {
    const auto same = [&](const auto& other) { return other.fault == back[i].fault; };
    back[i].last =
        std::ranges::none_of(out_, same) &&
        std::none_of(back.begin() + static_cast<std::ptrdiff_t>(i) + 1, back.end(), same);
  }
  return back;
}

}  // namespace muster::cli
