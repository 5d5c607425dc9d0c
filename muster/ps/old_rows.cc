#include "muster/ps/old_rows.h"

#include <algorithm>
#include <utility>

#include "muster/ps/bytes.h"

namespace muster::ps {

void OldRows::keep(uint32_t table, std::span<const uint64_t> keys, std::vector<float> weights) {
  next_.push_back({table, {keys.begin(), keys.end()}, std::move(weights)});
}

void OldRows::keep_evicted(uint32_t table, std::span<const uint64_t> keys,
                           std::span<const float> weights) {
  if (keys.empty()) return;
  const auto width = static_cast<std::ptrdiff_t>(weights.size() / keys.size());
  auto place = std::ranges::lower_bound(next_, table, {}, &Changed::table);
  if (place == next_.end() || place->table != table) {
    place = next_.insert(place, Changed{table, {}, {}});
  }
  const Changed changed = std::exchange(*place, Changed{table, {}, {}});
  const auto take_from = [&](const Changed& from, size_t i) {
    const auto row = from.weights.begin() + static_cast<std::ptrdiff_t>(i) * width;
    place->keys.push_back(from.keys[i]);
    place->weights.insert(place->weights.end(), row, row + width);
  };
  const Changed evicted{table, {keys.begin(), keys.end()}, {weights.begin(), weights.end()}};
  size_t i = 0;
  for (size_t k = 0; k < keys.size(); ++k) {
    while (i < changed.keys.size() && changed.keys[i] < keys[k]) take_from(changed, i++);
    const bool known = i < changed.keys.size() && changed.keys[i] == keys[k];
    if (!known) take_from(evicted, k);
  }
  while (i < changed.keys.size()) take_from(changed, i++);
}

void OldRows::end_update(size_t most) {
  kept_.push_back(std::exchange(next_, {}));
  while (kept_.size() > most) kept_.pop_front();
}

const float* OldRows::find(const Update& update, uint32_t table, uint64_t key, size_t width) {
  for (const Changed& changed : update) {
    if (changed.table != table) continue;
    const auto found = std::ranges::lower_bound(changed.keys, key);
    if (found == changed.keys.end() || *found != key) return nullptr;
    return &changed.weights[static_cast<size_t>(found - changed.keys.begin()) * width];
  }
  return nullptr;
}

// The first update that has changed a row since knows what it was.
void OldRows::read(uint32_t table, std::span<const uint64_t> keys, size_t back, size_t width,
                   float* weights) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t update = kept_.size() - back; update < kept_.size(); ++update) {
      const float* const old = find(kept_[update], table, keys[i], width);
      if (old == nullptr) continue;
      std::copy_n(old, width, weights + i * width);
      break;
    }
  }
}

void OldRows::save(std::string& to) const {
  append(to, uint64_t{kept_.size()});
  for (const Update& update : kept_) {
    append(to, uint64_t{update.size()});
    for (const Changed& changed : update) {
      append(to, changed.table);
      append_all(to, changed.keys);
      append_all(to, changed.weights);
    }
  }
}

Status OldRows::load(std::string_view& from, std::span<const size_t> widths) {
  const auto take_update = [&](Update& update) {
    uint64_t tables = 0;
    if (!take(from, tables) || tables > widths.size()) return false;
    for (uint64_t i = 0; i < tables; ++i) {
      Changed& changed = update.emplace_back();
      const bool sound = take(from, changed.table) && changed.table < widths.size() &&
                         (i == 0 || changed.table > update[i - 1].table) &&
                         take_all(from, changed.keys) && take_all(from, changed.weights) &&
                         changed.weights.size() == changed.keys.size() * widths[changed.table] &&
                         std::ranges::is_sorted(changed.keys);
      if (!sound) return false;
    }
    return true;
  };
  *this = {};
  uint64_t updates = 0;
  bool sound = take(from, updates);
  for (uint64_t i = 0; sound && i < updates; ++i) sound = take_update(kept_.emplace_back());
  if (sound) return {};
  *this = {};
  return Error(ErrorKind::kIo, "the saved old rows of a shard are damaged");
}

}  // namespace muster::ps
