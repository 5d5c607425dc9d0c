#include "muster/ps/staged_pushes.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

Error damaged() { return Error(ErrorKind::kIo, "the saved pushes of a shard are damaged"); }

void append_rows(std::string& to, const std::vector<StagedRows>& all) {
  append(to, uint64_t{all.size()});
  for (const auto& rows : all) {
    append(to, rows.table);
    append(to, rows.lr);
    append_all(to, rows.keys);
    append_all(to, rows.gradients);
    append_all(to, rows.read);
  }
}

bool take_rows(std::string_view& from, const std::function<bool(const StagedRows&)>& fits,
               std::vector<StagedRows>& all) {
  uint64_t count = 0;
  if (!take(from, count)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    auto& rows = all.emplace_back();
    if (!take(from, rows.table) || !take(from, rows.lr) || !take_all(from, rows.keys) ||
        !take_all(from, rows.gradients) || !take_all(from, rows.read) || !fits(rows)) {
      return false;
    }
  }
  return true;
}

}  // namespace

// One rounding after the other, in this order. A product that overflows does not correct anything.
void compensate(float compensation, std::span<const float> now, std::span<const float> read,
                std::span<float> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const float g = gradients[i];
    const float corrected = g + compensation * (g * g) * (now[i] - read[i]);
    gradients[i] = std::isfinite(corrected) ? corrected : g;
  }
}

void StagedPushes::stage(uint64_t ticket, StagedRows rows) {
  if (ticket >= oldest_) staged_[ticket].push_back(std::move(rows));
}

bool StagedPushes::place(uint64_t ticket, float weight, float compensation, int64_t pushes) {
  auto& placed = update_.emplace_back();
  placed.compensation = compensation;
  placed.weight = weight / static_cast<float>(pushes);
  // None: no row of this shard was used.
  if (const auto found = staged_.find(ticket); found != staged_.end()) {
    placed.rows = std::move(found->second);
    staged_.erase(found);
  }
  ++places_;
  return static_cast<int64_t>(update_.size()) >= pushes;
}

bool StagedPushes::read_update(uint32_t table, std::vector<uint64_t>& keys,
                               std::vector<float>& gradients, double& lr) const {
  struct Piece {
    uint64_t key;
    size_t place;
    const float* gradient;
    float weight;
  };
  std::vector<Piece> pieces;
  size_t width = 0;
  for (const auto& placed : update_) {
    for (const auto& rows : placed.rows) {
      if (rows.table != table || rows.keys.empty()) continue;
      width = rows.gradients.size() / rows.keys.size();
      lr = rows.lr;
      for (size_t i = 0; i < rows.keys.size(); ++i) {
        pieces.push_back(
            {rows.keys[i], pieces.size(), rows.gradients.data() + i * width, placed.weight});
      }
    }
  }
  if (pieces.empty()) return false;
  std::ranges::sort(pieces, [](const Piece& a, const Piece& b) {
    return std::tie(a.key, a.place) < std::tie(b.key, b.place);
  });
  keys.clear();
  gradients.clear();
  for (const auto& piece : pieces) {
    if (keys.empty() || keys.back() != piece.key) {
      keys.push_back(piece.key);
      gradients.resize(gradients.size() + width, 0.0f);
    }
    float* const sum = gradients.data() + gradients.size() - width;
    for (size_t i = 0; i < width; ++i) sum[i] += piece.weight * piece.gradient[i];
  }
  return true;
}

float StagedPushes::read_weights(uint32_t table, std::span<const uint64_t> keys,
                                 std::vector<float>& read) const {
  if (update_.size() != 1 || update_[0].compensation == 0) return 0;
  std::vector<bool> found(keys.size(), false);
  read.clear();
  for (const auto& rows : update_[0].rows) {
    if (rows.table != table || rows.keys.empty()) continue;
    if (rows.read.empty()) return 0;
    const size_t width = rows.read.size() / rows.keys.size();
    read.resize(keys.size() * width);
    for (size_t i = 0; i < rows.keys.size(); ++i) {
      const auto at = std::ranges::lower_bound(keys, rows.keys[i]) - keys.begin();
      const auto place = static_cast<size_t>(at);
      if (found[place]) continue;
      found[place] = true;
      std::copy_n(&rows.read[i * width], width, &read[place * width]);
    }
  }
  return update_[0].compensation;
}

void StagedPushes::forget_before(uint64_t ticket) {
  oldest_ = std::max(oldest_, ticket);
  staged_.erase(staged_.begin(), staged_.lower_bound(oldest_));
}

void StagedPushes::save(std::string& to) const {
  append(to, places_);
  append(to, oldest_);
  append(to, uint64_t{staged_.size()});
  for (const auto& [ticket, rows] : staged_) {
    append(to, ticket);
    append_rows(to, rows);
  }
  append(to, uint64_t{update_.size()});
  for (const auto& placed : update_) {
    append(to, placed.weight);
    append(to, placed.compensation);
    append_rows(to, placed.rows);
  }
}

void StagedPushes::save_places(std::string& to) const {
  StagedPushes empty;
  empty.places_ = places_;
  empty.oldest_ = oldest_;
  empty.save(to);
}

Status StagedPushes::load(std::string_view& from,
                          const std::function<bool(const StagedRows&)>& fits) {
  StagedPushes loaded;
  uint64_t tickets = 0;
  uint64_t placed = 0;
  if (!take(from, loaded.places_) || !take(from, loaded.oldest_) || !take(from, tickets) ||
      loaded.places_ < 0) {
    return damaged();
  }
  for (uint64_t i = 0; i < tickets; ++i) {
    uint64_t ticket = 0;
    if (!take(from, ticket) || !take_rows(from, fits, loaded.staged_[ticket])) return damaged();
  }
  if (!take(from, placed)) return damaged();
  for (uint64_t i = 0; i < placed; ++i) {
    auto& one = loaded.update_.emplace_back();
    if (!take(from, one.weight) || !take(from, one.compensation) ||
        !take_rows(from, fits, one.rows))
      return damaged();
  }
  *this = std::move(loaded);
  return {};
}

}  // namespace muster::ps
