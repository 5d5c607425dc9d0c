#include "muster/store/walk.h"

#include <algorithm>

namespace muster::store {
namespace {

class Walk {
 public:
  Walk(const Glob& glob, const Tree& tree, const MakeRequest& make, const std::stop_token& stop)
      : parts_(glob.parts()), tree_(tree), make_(make), stop_(stop) {}

  // `base` is "" or ends with '/'; parts from `at` on remain.
  Status from(const std::string& base, size_t at) {
    const std::string& part = parts_[at];
    const bool last = at + 1 == parts_.size();
    if (part != "**" && !has_wildcard(part)) {
      return last ? look_at(base + part) : from(base + part + "/", at + 1);
    }
    if (part == "**" && !last) MUSTER_RETURN_IF_ERROR(from(base, at + 1));
    MUSTER_RETURN_IF_ERROR(go_on());
    MUSTER_TRY(const auto entries, answer_of(make_, [&] { return tree_.list_folder(base); }));
    for (const auto& entry : entries) MUSTER_RETURN_IF_ERROR(enter(base, entry, at));
    return {};
  }

  std::vector<Object> take() {
    std::sort(found_.begin(), found_.end(),
              [](const Object& a, const Object& b) { return a.name < b.name; });
    // Two ** can reach the same object in several ways.
    const auto same = [](const Object& a, const Object& b) { return a.name == b.name; };
    found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
    return std::move(found_);
  }

 private:
  Status enter(const std::string& base, const FolderEntry& entry, size_t at) {
    const bool last = at + 1 == parts_.size();
    if (parts_[at] == "**") {
      if (entry.name.empty() || entry.name[0] == '.') return {};
      if (entry.is_folder) return from(base + entry.name + "/", at);
      return last ? add(base, entry) : Status();
    }
    if (!name_matches(parts_[at], entry.name)) return {};
    if (!last) return from(base + entry.name + "/", at + 1);
    return entry.is_folder ? Status() : add(base, entry);
  }

  Status add(const std::string& base, const FolderEntry& entry) {
    if (!entry.object) return look_at(base + entry.name);
    found_.push_back(*entry.object);
    return {};
  }

  Status look_at(const std::string& path) {
    MUSTER_RETURN_IF_ERROR(go_on());
    MUSTER_TRY(auto object, answer_of(make_, [&] { return tree_.look_at(path); }));
    if (object) found_.push_back(*std::move(object));
    return {};
  }

  Status go_on() const {
    if (!stop_.stop_requested()) return {};
    return Error(ErrorKind::kInterrupted, "listing was stopped");
  }

  const std::vector<std::string>& parts_;
  const Tree& tree_;
  const MakeRequest& make_;
  const std::stop_token& stop_;
  std::vector<Object> found_;
};

}  // namespace

Result<std::vector<Object>> walk(const Glob& glob, const Tree& tree, const MakeRequest& make,
                                 const std::stop_token& stop) {
  Walk walk(glob, tree, make, stop);
  // An absolute pattern has an empty first part.
  const bool absolute = glob.parts()[0].empty();
  MUSTER_RETURN_IF_ERROR(walk.from(absolute ? "/" : "", absolute ? 1 : 0));
  return walk.take();
}

}  // namespace muster::store
