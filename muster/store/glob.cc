#include "muster/store/glob.h"

#include <algorithm>

#include "muster/base/text.h"

namespace muster::store {
namespace {

// Whether "**" may pass this folder or object.
bool is_plain(std::string_view name) { return !name.empty() && name[0] != '.'; }

}  // namespace

bool has_wildcard(std::string_view text) {
  return text.find_first_of("*?") != std::string_view::npos;
}

bool name_matches(std::string_view part, std::string_view name) {
  if (!has_wildcard(part)) return part == name;
  if (name.empty() || (name[0] == '.' && part[0] != '.')) return false;
  // The usual way: on a mismatch, let the last * take one character more. No recursion, and at most
  // part * name steps.
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t taken = 0;
  while (n < name.size()) {
    if (p < part.size() && part[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < part.size() && (part[p] == '?' || part[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < part.size() && part[p] == '*') ++p;
  return p == part.size();
}

Result<Glob> Glob::parse(std::string_view pattern) {
  Glob glob;
  for (auto& part : split(pattern, '/')) {
    if (part == "**") {
      if (!glob.parts_.empty() && glob.parts_.back() == "**") continue;
    } else if (part.find("**") != std::string::npos) {
      return Error(ErrorKind::kJob,
                   "'{}': ** stands for folders and must be alone between slashes; use * within a "
                   "name",
                   part);
    }
    glob.parts_.push_back(std::move(part));
  }
  glob.prefix_ =
      std::string(pattern.substr(0, std::min(pattern.find_first_of("*?"), pattern.size())));
  return glob;
}

bool Glob::in_one_folder() const {
  return parts_.back() != "**" &&
         std::none_of(parts_.begin(), parts_.end() - 1,
                      [](const std::string& part) { return has_wildcard(part); });
}

bool Glob::matches(std::string_view name) const {
  const auto names = split(name, '/');
  // The same way as in name_matches, with "**" in the place of the star.
  size_t p = 0;
  size_t n = 0;
  size_t stars = std::string_view::npos;
  size_t taken = 0;
  while (n < names.size()) {
    if (p < parts_.size() && parts_[p] == "**") {
      stars = p++;
      taken = n;
      // At the end it takes the rest, of which there is at least the object's own name.
      if (p == parts_.size()) {
        return std::all_of(names.begin() + static_cast<ptrdiff_t>(n), names.end(), is_plain);
      }
    } else if (p < parts_.size() && name_matches(parts_[p], names[n])) {
      ++p;
      ++n;
    } else if (stars != std::string_view::npos && is_plain(names[taken])) {
      p = stars + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return p == parts_.size();
}

}  // namespace muster::store
