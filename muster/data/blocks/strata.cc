#include "muster/data/blocks/strata.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/base/random.h"
#include "muster/data/permutation.h"

namespace muster::data {
namespace {

// What a key is for; 6 is that of replacements.cc. Part of the format of a run: never renumber.
enum Kind : uint64_t { kMixing = 1, kRotation = 2, kHomes = 3, kPieces = 4, kInside = 5 };

// How many tables of each lane, and of passes, are kept: a batch may go from one pass to the next,
// and a schedule (schedule.h) looks ahead.
constexpr size_t kKept = 2;
// A lane that was not asked for in so many requests for each lane of the job is not read any more.
constexpr uint64_t kIdle = 64;

}  // namespace

// Where each stretch of a pass begins, in the rotated data.
struct Strata::PassTable {
  uint64_t pass = 0;
  uint64_t rotation = 0;
  // By place in the rotated data, w * L of them, and the end of the last. Stretch k is of track
  // k / L.
  std::vector<uint64_t> starts;
  std::vector<uint32_t> lane_at;   // by place
  std::vector<uint32_t> place_of;  // by track and lane: within the track's L
};

struct Strata::Stretch {
  uint64_t first = 0;  // sample
  uint64_t count = 0;  // from there on, past the last sample to the first
  size_t first_block = 0;
  size_t pieces = 0;
};

// What was made before. Each entry is made once, outside of the lock, by whoever asks first.
struct Strata::Memo {
  template <typename T>
  struct Entry {
    uint64_t pass = 0;
    std::once_flag once;
    std::shared_ptr<const T> table;
  };
  // The newest last.
  template <typename T>
  using Entries = std::vector<std::shared_ptr<Entry<T>>>;

  template <typename T>
  static std::shared_ptr<Entry<T>> find(Entries<T>& entries, uint64_t pass) {
    for (const auto& entry : entries) {
      if (entry->pass == pass) return entry;
    }
    if (entries.size() == kKept) entries.erase(entries.begin());
    entries.push_back(std::make_shared<Entry<T>>());
    entries.back()->pass = pass;
    return entries.back();
  }

  struct Lane {
    Entries<LaneTable> tables;
    uint64_t used = 0;  // the last of `calls`
  };

  std::mutex mutex;
  // Guarded by mutex from here on.
  Entries<PassTable> passes;
  std::map<uint64_t, Lane> lanes;
  uint64_t calls = 0;  // of table()
};

StrataShape strata_shape(const BlockIndex& index, uint64_t lanes, const StrataOptions& options) {
  MUSTER_CHECK(!index.blocks.empty() && lanes > 0, "an index with blocks, and lanes");
  const uint64_t blocks = index.blocks.size();
  const uint64_t mean_bytes = std::max<uint64_t>(1, index.bytes() / blocks);
  const uint64_t mean_samples = index.samples() / blocks;
  StrataShape shape;
  shape.tracks = std::max<uint64_t>(2, std::min(options.window / mean_bytes, blocks / (8 * lanes)));
  shape.rows = std::max<uint64_t>(1, mean_samples / 8);
  shape.homes = options.homes;
  return shape;
}

Strata::Strata(std::shared_ptr<const BlockIndex> index, uint64_t seed, uint64_t batch,
               uint64_t lanes, const StrataShape& shape)
    : index_(std::move(index)),
      seed_(seed),
      n_(index_->samples()),
      batch_(batch),
      lanes_(lanes),
      shape_(shape),
      memo_(std::make_unique<Memo>()) {
  MUSTER_CHECK(n_ >= 1 && n_ <= Permutation::kMaxSize, "from 1 to 2^40 samples");
  MUSTER_CHECK(index_->blocks.size() <= std::numeric_limits<uint32_t>::max(), "2^32 - 1 blocks");
  MUSTER_CHECK(batch >= 1 && lanes >= 1 && shape.tracks >= 1 && shape.rows >= 1, "a shape");
}

Strata::~Strata() = default;

uint64_t Strata::key(uint64_t kind, uint64_t a, uint64_t b, uint64_t c) const {
  // As RandomStream's, but longer, so that these keys are unrelated to those of the order `full`.
  const std::array<uint64_t, 6> name = {seed_, static_cast<uint64_t>(Purpose::kOrder), kind, a, b,
                                        c};
  return hash64(name.data(), sizeof(name));
}

uint64_t Strata::lane_samples_before(uint64_t lane, uint64_t position) const {
  const uint64_t begin = lane_begin(lane);
  const uint64_t width = lane_begin(lane + 1) - begin;
  const uint64_t in_batch = position % batch_;
  const uint64_t here = in_batch < begin ? 0 : std::min(in_batch - begin, width);
  return position / batch_ * width + here;
}

uint64_t Strata::position_of_lane_sample(uint64_t lane, uint64_t i) const {
  const uint64_t begin = lane_begin(lane);
  const uint64_t width = lane_begin(lane + 1) - begin;
  return i / width * batch_ + begin + i % width;
}

std::shared_ptr<const Strata::PassTable> Strata::make_pass_table(uint64_t pass) const {
  auto table = std::make_shared<PassTable>();
  table->pass = pass;
  // Fixed homes have the keys of a pass that never comes.
  const uint64_t home = shape_.homes == Homes::kFixed ? std::numeric_limits<uint64_t>::max() : pass;
  if (shape_.homes == Homes::kMoving) {
    const unsigned __int128 bits = key(kRotation, pass, 0);
    table->rotation = static_cast<uint64_t>((bits * n_) >> 64);
  }
  std::vector<uint64_t> quotas(lanes_);
  for (uint64_t lane = 0; lane < lanes_; ++lane) {
    quotas[lane] =
        lane_samples_before(lane, (pass + 1) * n_) - lane_samples_before(lane, pass * n_);
  }
  const uint64_t stretches = shape_.tracks * lanes_;
  table->starts.reserve(stretches + 1);
  table->lane_at.reserve(stretches);
  table->place_of.resize(stretches);
  uint64_t start = 0;
  for (uint64_t track = 0; track < shape_.tracks; ++track) {
    const Permutation order(lanes_, key(kHomes, home, track));
    for (uint64_t place = 0; place < lanes_; ++place) {
      const uint64_t lane = order(place);
      table->starts.push_back(start);
      table->lane_at.push_back(static_cast<uint32_t>(lane));
      table->place_of[track * lanes_ + lane] = static_cast<uint32_t>(place);
      start += quotas[lane] / shape_.tracks + (track < quotas[lane] % shape_.tracks ? 1 : 0);
    }
  }
  MUSTER_CHECK(start == n_, "the quotas of a pass are all of its samples");
  table->starts.push_back(start);
  return table;
}

std::shared_ptr<const Strata::PassTable> Strata::pass_table(uint64_t pass) const {
  std::shared_ptr<Memo::Entry<PassTable>> entry;
  {
    const std::lock_guard lock(memo_->mutex);
    entry = Memo::find(memo_->passes, pass);
  }
  std::call_once(entry->once, [&] { entry->table = make_pass_table(pass); });
  return entry->table;
}

Strata::Stretch Strata::stretch(const PassTable& pass, uint64_t track, uint64_t lane) const {
  const size_t place = track * lanes_ + pass.place_of[track * lanes_ + lane];
  Stretch result;
  result.count = pass.starts[place + 1] - pass.starts[place];
  result.first = (pass.starts[place] + pass.rotation) % n_;
  if (result.count == 0) return result;
  result.first_block = index_->block_of(result.first);
  const size_t last_block = index_->block_of((result.first + result.count - 1) % n_);
  const bool wraps = result.first + result.count > n_;
  result.pieces = (wraps ? index_->blocks.size() : 0) + last_block + 1 - result.first_block;
  return result;
}

std::shared_ptr<const Strata::LaneTable> Strata::make_table(uint64_t pass, uint64_t lane) const {
  const auto places = pass_table(pass);
  auto table = std::make_shared<LaneTable>();
  table->pass = pass;
  table->lane = lane;
  table->begin = lane_samples_before(lane, pass * n_);
  table->quota = lane_samples_before(lane, (pass + 1) * n_) - table->begin;
  table->track_ends.reserve(shape_.tracks);
  for (uint64_t track = 0; track < shape_.tracks; ++track) {
    const Stretch all = stretch(*places, track, lane);
    if (all.count > 0) {
      const Permutation order(all.pieces, key(kPieces, pass, lane, track));
      uint64_t row = 0;
      for (size_t k = 0; k < all.pieces; ++k) {
        const size_t d = order(k);
        const size_t number = (all.first_block + d) % index_->blocks.size();
        const Block& block = index_->blocks[number];
        const uint64_t first = d == 0 ? all.first : block.first;
        const uint64_t end =
            d + 1 == all.pieces ? (all.first + all.count - 1) % n_ + 1 : block.first + block.count;
        row += end - first;
        table->pieces.push_back(
            {.first = first, .end_row = row, .block = static_cast<uint32_t>(number)});
      }
    }
    table->track_ends.push_back(table->pieces.size());
  }
  return table;
}

std::shared_ptr<const Strata::LaneTable> Strata::table(uint64_t pass, uint64_t lane) const {
  std::shared_ptr<Memo::Entry<LaneTable>> entry;
  {
    const std::lock_guard lock(memo_->mutex);
    Memo::Lane& kept = memo_->lanes[lane];
    kept.used = ++memo_->calls;
    const auto is_same = [&](const auto& it) { return it->pass == pass; };
    const bool is_new = std::ranges::none_of(kept.tables, is_same);
    entry = Memo::find(kept.tables, pass);
    if (is_new) {  // then those of lanes that other workers have by now go
      std::erase_if(memo_->lanes,
                    [&](const auto& it) { return it.second.used + kIdle * lanes_ < memo_->calls; });
    }
  }
  std::call_once(entry->once, [&] { entry->table = make_table(pass, lane); });
  return entry->table;
}

// The lane's samples of this pass from number i on.
void Strata::lane_samples(const LaneTable& table, uint64_t i, std::span<uint64_t> into) const {
  const uint64_t group_size = shape_.rows * shape_.tracks;
  size_t done = 0;
  while (done < into.size()) {
    const uint64_t group = i / group_size;
    const uint64_t begin = group * group_size;
    const uint64_t size = std::min(group_size, table.quota - begin);
    const Permutation mixing(size, key(kMixing, table.pass, table.lane, group));
    const size_t end = done + std::min<uint64_t>(into.size() - done, begin + size - i);
    for (; done < end; ++done, ++i) {
      const uint64_t mixed = begin + mixing(i - begin);
      const uint64_t row = mixed / shape_.tracks;
      const auto track = table.track(mixed % shape_.tracks);
      const auto piece = std::ranges::upper_bound(track, row, {}, &Piece::end_row);
      const uint64_t start = piece == track.begin() ? 0 : std::prev(piece)->end_row;
      const Permutation inside(piece->end_row - start, key(kInside, table.pass, piece->first));
      into[done] = piece->first + inside(row - start);
    }
  }
}

void Strata::samples(const Slice& positions, std::span<uint64_t> into) const {
  MUSTER_CHECK(into.size() == positions.count, "room for exactly these samples");
  uint64_t position = positions.first;
  while (!into.empty()) {
    // As far as one lane and pass go.
    const uint64_t pass = position / n_;
    const uint64_t lane = lane_of(position);
    const uint64_t run = std::min(
        {uint64_t{into.size()}, n_ - position % n_, lane_begin(lane + 1) - position % batch_});
    const auto lane_table = table(pass, lane);
    lane_samples(*lane_table, lane_samples_before(lane, position) - lane_table->begin,
                 into.first(run));
    into = into.subspan(run);
    position += run;
  }
}

uint64_t Strata::position_of(uint64_t pass, uint64_t sample) const {
  MUSTER_CHECK(sample < n_, "a sample of the data");
  const auto places = pass_table(pass);
  const uint64_t rotated = (sample + n_ - places->rotation) % n_;
  // The stretch: the last that begins here or before, which is none of the empty ones.
  const auto after = std::ranges::upper_bound(places->starts, rotated);
  const auto place = static_cast<size_t>(after - places->starts.begin()) - 1;
  const uint64_t track = place / lanes_;
  const uint64_t lane = places->lane_at[place];
  const Stretch all = stretch(*places, track, lane);
  // The piece: in the order of the data, then in that of the track. The first and the last may be
  // of the same block.
  const size_t block = index_->block_of(sample);
  size_t d = (block + index_->blocks.size() - all.first_block) % index_->blocks.size();
  if (d == 0 && sample < all.first) d = all.pieces - 1;
  const uint64_t number = Permutation(all.pieces, key(kPieces, pass, lane, track)).position_of(d);
  const auto lane_table = table(pass, lane);
  const auto pieces = lane_table->track(track);
  const Piece& piece = pieces[number];
  const uint64_t start = number == 0 ? 0 : pieces[number - 1].end_row;
  const Permutation inside(piece.end_row - start, key(kInside, pass, piece.first));
  const uint64_t row = start + inside.position_of(sample - piece.first);

  const uint64_t mixed = row * shape_.tracks + track;
  const uint64_t group_size = shape_.rows * shape_.tracks;
  const uint64_t group = mixed / group_size;
  const uint64_t begin = group * group_size;
  const Permutation mixing(std::min(group_size, lane_table->quota - begin),
                           key(kMixing, pass, lane, group));
  const uint64_t i = begin + mixing.position_of(mixed - begin);
  return position_of_lane_sample(lane, lane_table->begin + i);
}

}  // namespace muster::data
