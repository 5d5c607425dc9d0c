// Synthetic click data; see ctr.h for what it is.
//
// The same options give the same bits on every machine. Samples are computed in integers alone:
// random numbers by counter, ids, and scores in fixed point. Only what open() prepares (the table
// of frequencies, the strengths of the model, the deviation of its scores) is computed in doubles,
// and only with + - * / sqrt and rounding, which IEEE 754 defines to the last bit, in a fixed
// order, not with pow, exp or log, whose last bit differs between libraries. The build forbids the
// compiler to fuse a * b + c (-ffp-contract=off).
//
// ctr_test.cc records hashes of samples. Whoever changes what they are raises kVersion.
#include "muster/data/ctr.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/data/formats.h"
#include "muster/data/order.h"

namespace muster::data {
namespace {

constexpr uint64_t kVersion = 1;
constexpr int64_t kMostColumns = 4096;  // features, and numbers
constexpr int64_t kMostIds = int64_t{1} << 40;

// Apart from what programs draw with kUser and the next few.
constexpr uint32_t kFirstPurpose = static_cast<uint32_t>(Purpose::kUser) + 0x637472;
constexpr auto kModel = static_cast<Purpose>(kFirstPurpose);            // weights
constexpr auto kScatter = static_cast<Purpose>(kFirstPurpose + 1);      // (feature)
constexpr auto kSamples = static_cast<Purpose>(kFirstPurpose + 2);      // (stream, column)
constexpr auto kCalibration = static_cast<Purpose>(kFirstPurpose + 3);  // (0, column)

uint64_t high_half(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

// 64 well mixed bits for an id (the finalizer of SplitMix64).
uint64_t mix(uint64_t id, uint64_t key) {
  uint64_t x = (id + key) * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// x^exponent for exponents of at least 0, the same on every machine: the whole part by
// multiplication, each binary digit of the rest by one more square root.
double power(double x, double exponent) {
  const auto whole = static_cast<int>(exponent);
  double rest = exponent - whole;
  double result = 1;
  for (int i = 0; i < whole; ++i) result *= x;
  double root = x;
  while (rest > 0) {
    root = std::sqrt(root);
    rest *= 2;
    if (rest >= 1) {
      result *= root;
      rest -= 1;
    }
  }
  return result;
}

// Ranks from 0, of which rank r - 1 is as frequent as 1 / r^skew. That holds for each of the first
// 31; from there on each octave (32 to 63, ...) is cut into 16 segments, inside which all ranks are
// equally frequent. So the table is short however many ids there are.
class ZipfRanks {
 public:
  ZipfRanks(uint64_t ids, double skew) {
    std::vector<double> sums = {0};
    for (uint64_t first = 1; first <= ids;) {
      const uint64_t width =
          std::min(std::max(std::bit_floor(first) / 16, uint64_t{1}), ids + 1 - first);
      const double middle = static_cast<double>(first) + static_cast<double>(width - 1) / 2;
      sums.push_back(sums.back() + static_cast<double>(width) / power(middle, skew));
      segments_.push_back({.first = first - 1, .width = width});
      first += width;
    }
    for (const double sum : sums) {
      starts_.push_back(static_cast<uint64_t>(sum / sums.back() * 0x1p53));
    }
    starts_.back() = std::numeric_limits<uint64_t>::max();  // so that no search goes past the end
    size_t segment = 0;
    for (uint64_t i = 0; i < guide_.size(); ++i) {
      while (starts_[segment + 1] <= i << kGuideShift) ++segment;
      guide_[i] = static_cast<uint32_t>(segment);
    }
  }

  // From 128 random bits.
  uint64_t operator()(uint64_t where, uint64_t inside) const {
    where >>= 11;  // 53 bits, as many as doubles have
    size_t segment = guide_[where >> kGuideShift];
    while (starts_[segment + 1] <= where) ++segment;
    return segments_[segment].first + high_half(inside, segments_[segment].width);
  }

 private:
  static constexpr int kGuideShift = 53 - 9;
  struct Segment {
    uint64_t first = 0;
    uint64_t width = 0;
  };
  std::vector<Segment> segments_;
  std::vector<uint64_t> starts_;        // probability of all segments before, in units of 2^-53
  std::array<uint32_t, 1 << 9> guide_;  // where the search begins, by the first 9 bits
};

// A keyed permutation of [0, ids), so that frequent ids are not the small ones. Each operation can
// be undone among numbers of so many bits; what falls outside of [0, ids) is put through again.
// Order (order.h) is a better one, and slower; here nothing needs a permutation that looks random.
class Scatter {
 public:
  Scatter(uint64_t ids, RandomStream keys)
      : ids_(ids),
        mask_((uint64_t{1} << std::bit_width(ids - 1)) - 1),
        shift_((std::bit_width(ids - 1) + 1) / 2),
        keys_{keys.next_u64(), keys.next_u64(), keys.next_u64()} {}

  uint64_t operator()(uint64_t x) const {
    do {
      x = ((x + keys_[0]) * 0x9E3779B97F4A7C15U) & mask_;
      x ^= x >> shift_;
      x = ((x + keys_[1]) * 0xD6E8FEB86659FD93U) & mask_;
      x ^= x >> shift_;
      x = (x + keys_[2]) & mask_;
    } while (x >= ids_);
    return x;
  }

 private:
  uint64_t ids_;
  uint64_t mask_;
  int shift_;
  std::array<uint64_t, 3> keys_;
};

// One stream for each column (numbers, then features) and one for the noise: block i is for sample
// i, so that no column depends on how many others there are.
class Draws {
 public:
  Draws(const CtrOptions& options, Purpose purpose, uint64_t stream) {
    const int64_t columns = options.numbers + options.features;
    for (int64_t column = 0; column <= columns; ++column) {
      const bool is_noise = column == columns;
      const bool is_number = column < options.numbers;
      const int64_t within = is_number ? column : column - options.numbers;
      const auto name = is_noise ? 0 : static_cast<uint64_t>(2 * within + (is_number ? 1 : 2));
      streams_.emplace_back(static_cast<uint64_t>(options.seed), purpose, stream, name);
    }
  }

  std::array<uint32_t, 4> column(size_t column, uint64_t index) const {
    return streams_[column].block(index);
  }
  // The sum of three uniform numbers, with mean 0 and deviation 2^31.
  int64_t noise(uint64_t index) const { return sum(streams_.back().block(index)); }
  static int64_t sum(const std::array<uint32_t, 4>& bits) {
    return int64_t{bits[0]} + bits[1] + bits[2] - (int64_t{3} << 31);
  }

 private:
  std::vector<RandomStream> streams_;
};

// How records come about.
class Records {
 public:
  explicit Records(const CtrOptions& options)
      : numbers_(static_cast<size_t>(options.numbers)),
        ids_(static_cast<uint64_t>(options.ids)),
        ranks_(ids_, options.skew) {
    const auto seed = static_cast<uint64_t>(options.seed);
    for (int64_t i = 0; i < options.features; ++i) {
      scatters_.emplace_back(ids_, RandomStream(seed, kScatter, static_cast<uint64_t>(i)));
    }
  }

  void draw(const Draws& draws, uint64_t index, int64_t* input) const {
    for (size_t i = 0; i < numbers_; ++i) {
      input[i] = Draws::sum(draws.column(i, index)) >> 15;  // deviation 2^16: 1 in units of 2^-16
    }
    for (size_t i = 0; i < scatters_.size(); ++i) {
      const auto bits = draws.column(numbers_ + i, index);
      const uint64_t rank =
          ranks_(uint64_t{bits[1]} << 32 | bits[0], uint64_t{bits[3]} << 32 | bits[2]);
      input[numbers_ + i] = static_cast<int64_t>(i * ids_ + scatters_[i](rank));
    }
  }

 private:
  size_t numbers_;
  uint64_t ids_;
  ZipfRanks ranks_;
  std::vector<Scatter> scatters_;
};

// The model behind the clicks, in fixed point. Its three parts have deviations that do not depend
// on how many columns there are, about these; together about 1.
constexpr double kOfIds = 0.7;
constexpr double kOfNumbers = 0.45;
constexpr double kOfPairs = 0.55;
constexpr int64_t kPairedFeatures = 6;  // the first ones: 15 pairs
constexpr int64_t kStrongEvery = 5;     // features 0, 5, 10, ...
constexpr double kStrong = 3;           // how much larger their weights are

class PlantedModel {
 public:
  static constexpr int kBits = 20;  // scores are in units of 2^-20

  explicit PlantedModel(const CtrOptions& options) {
    RandomStream keys(static_cast<uint64_t>(options.seed), kModel);
    weight_key_ = keys.next_u64();
    vector_key_ = keys.next_u64();
    set_slopes(options.numbers, keys);
    set_scales(options.features);
    paired_ = options.features < 2 ? 0 : std::min(options.features, kPairedFeatures);
    const auto pairs = static_cast<double>(paired_ * (paired_ - 1)) / 2;
    // A dot product of two vectors of 4 elements, uniform in [-1, 1), has the variance 4/9.
    if (paired_ > 0) pair_scale_ = fixed(kOfPairs / std::sqrt(pairs * 4 / 9), 20);
  }

  int64_t score(const int64_t* input) const {
    const int64_t* ids = input + slopes_.size();
    int64_t sum = 0;  // in units of 2^-40; 2^50 at most
    for (size_t i = 0; i < slopes_.size(); ++i) sum += slopes_[i] * input[i];
    for (size_t i = 0; i < scales_.size(); ++i) {
      const uint64_t bits = mix(static_cast<uint64_t>(ids[i]), weight_key_);
      sum += scales_[i] * (static_cast<int64_t>(bits >> 43) - (1 << 20));
    }
    return (sum + (pair_scale_ * dot_products(ids) >> 10)) >> 20;
  }

 private:
  static int64_t fixed(double value, int bits) {
    return std::llround(value * static_cast<double>(int64_t{1} << bits));
  }

  // In units of 2^-24: with those of the numbers, 2^-16, that makes 2^-40.
  void set_slopes(int64_t numbers, RandomStream& random) {
    std::vector<double> raw;
    double squares = 0;
    for (int64_t i = 0; i < numbers; ++i) {
      const uint32_t bits = random.next_u32();
      const double size = 0.25 + 0.75 * (static_cast<double>(bits >> 8) * 0x1p-24);
      raw.push_back((bits & 1) != 0 ? size : -size);
      squares += size * size;
    }
    for (const double slope : raw) {
      slopes_.push_back(fixed(kOfNumbers * slope / std::sqrt(squares), 24));
    }
  }

  // In units of 2^-20, as the weights that they multiply, which are uniform in [-1, 1).
  void set_scales(int64_t features) {
    const auto raw = [](int64_t i) { return i % kStrongEvery == 0 ? kStrong : 1.0; };
    double squares = 0;
    for (int64_t i = 0; i < features; ++i) squares += raw(i) * raw(i);
    for (int64_t i = 0; i < features; ++i) {
      scales_.push_back(fixed(kOfIds * raw(i) / std::sqrt(squares / 3), 20));
    }
  }

  // Of all pairs of the first features' vectors, in units of 2^-30: half of what the square of
  // their sum has more than their squares.
  int64_t dot_products(const int64_t* ids) const {
    std::array<int64_t, 4> sums{};
    int64_t squares = 0;
    for (int64_t i = 0; i < paired_; ++i) {
      uint64_t bits = mix(static_cast<uint64_t>(ids[i]), vector_key_);
      for (int64_t& sum : sums) {
        const int64_t element = static_cast<int64_t>(bits & 0xffff) - 0x8000;
        bits >>= 16;
        sum += element;
        squares += element * element;
      }
    }
    int64_t all = 0;
    for (const int64_t sum : sums) all += sum * sum;
    return (all - squares) / 2;
  }

  uint64_t weight_key_ = 0;
  uint64_t vector_key_ = 0;
  std::vector<int64_t> slopes_;  // of numbers
  std::vector<int64_t> scales_;  // of features
  int64_t paired_ = 0;           // features
  int64_t pair_scale_ = 0;       // in units of 2^-20
};

double deviation(const std::vector<int64_t>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const int64_t value : values) sum += static_cast<double>(value);
  const double mean = sum / count;
  double squares = 0;
  for (const int64_t value : values) {
    const double distance = static_cast<double>(value) - mean;
    squares += distance * distance;
  }
  return std::sqrt(squares / count);
}

Result<CtrOptions> read_args(const config::Node& node) {
  config::ArgReader args(node, "the format ctr");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CtrOptions o;
  MUSTER_TRY(o.samples, get_whole(args, "samples", o.samples, 1, int64_t{Order::kMaxSize}));
  MUSTER_TRY(o.stream, get_whole(args, "stream", o.stream, 0, kMost));
  MUSTER_TRY(o.features, get_whole(args, "features", o.features, 1, kMostColumns));
  MUSTER_TRY(o.ids, get_whole(args, "ids", o.ids, 2, kMostIds));
  MUSTER_TRY(o.numbers, get_whole(args, "numbers", o.numbers, 0, kMostColumns));
  MUSTER_TRY(o.skew, get_between(args, "skew", o.skew, 0, 10));
  MUSTER_TRY(o.rate, get_between(args, "rate", o.rate, 0.001, 0.999));
  MUSTER_TRY(o.noise, get_between(args, "noise", o.noise, 0, 100));
  MUSTER_TRY(o.seed, get_whole(args, "seed", o.seed, 0, kMost));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return o;
}

}  // namespace

// Everything that samples are computed from.
struct CtrDataset::Population {
  explicit Population(const CtrOptions& options)
      : records(options),
        model(options),
        draws(options, kSamples, static_cast<uint64_t>(options.stream)) {
    calibrate(options);
  }

  // Sets noise and threshold by samples that are in no stream, so that they are the same for all.
  void calibrate(const CtrOptions& options) {
    constexpr size_t kDrawn = 1 << 14;
    const Draws apart(options, kCalibration, 0);
    std::vector<int64_t> row(static_cast<size_t>(options.numbers + options.features));
    std::vector<int64_t> scores(kDrawn);
    for (size_t i = 0; i < kDrawn; ++i) {
      records.draw(apart, i, row.data());
      scores[i] = model.score(row.data());
    }
    noise = std::llround(2 * options.noise * deviation(scores));
    for (size_t i = 0; i < kDrawn; ++i) scores[i] = noisy(scores[i], apart.noise(i));
    const auto above = static_cast<size_t>(std::llround(options.rate * kDrawn));
    const auto last_without = scores.begin() + static_cast<ptrdiff_t>(kDrawn - 1 - above);
    std::nth_element(scores.begin(), last_without, scores.end());
    threshold = *last_without;
  }

  // In two shifts, so that no product overflows.
  int64_t noisy(int64_t score, int64_t drawn) const {
    return score + (noise * (drawn >> 12) >> 20);
  }
  bool clicked(int64_t score, uint64_t sample) const {
    return noisy(score, draws.noise(sample)) > threshold;
  }

  const Records records;
  const PlantedModel model;
  const Draws draws;
  int64_t noise = 0;  // what a draw of 2^32, two deviations, adds to a score
  int64_t threshold = 0;
};

CtrDataset::CtrDataset(const CtrOptions& options, Slice chosen)
    : options_(options), chosen_(chosen), population_(std::make_unique<const Population>(options)) {
  schema_.input = DType::kInt64;
  schema_.input_shape = {options.numbers + options.features};
  schema_.classes = 2;
  schema_.numbers = options.numbers;
  schema_.has_ids = true;
}

CtrDataset::~CtrDataset() = default;

Result<std::unique_ptr<CtrDataset>> CtrDataset::open(const config::SourceOptions& options) {
  MUSTER_TRY(const CtrOptions own, read_args(options.args));
  MUSTER_TRY(const Slice chosen,
             select_samples(options, static_cast<uint64_t>(own.samples), "ctr"));
  return std::unique_ptr<CtrDataset>(new CtrDataset(own, chosen));
}

void CtrDataset::read(uint64_t index, std::byte* input, std::byte* target) const {
  MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
  const uint64_t sample = chosen_.first + index;
  auto* row = reinterpret_cast<int64_t*>(input);
  population_->records.draw(population_->draws, sample, row);
  const bool clicked = population_->clicked(population_->model.score(row), sample);
  *reinterpret_cast<int64_t*>(target) = clicked ? 1 : 0;
}

double CtrDataset::planted_score(uint64_t index) const {
  MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
  std::vector<int64_t> row(schema_.input_elements());
  population_->records.draw(population_->draws, chosen_.first + index, row.data());
  constexpr double kUnit = 1.0 / (1 << PlantedModel::kBits);
  return static_cast<double>(population_->model.score(row.data())) * kUnit;
}

double CtrDataset::best_auc(uint64_t first, uint64_t count) const {
  MUSTER_CHECK(first <= chosen_.count && count <= chosen_.count - first,
               "samples lie within the data");
  struct Scored {
    int64_t score;
    bool clicked;
  };
  std::vector<Scored> all(count);
  std::vector<int64_t> row(schema_.input_elements());
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t sample = chosen_.first + first + i;
    population_->records.draw(population_->draws, sample, row.data());
    const int64_t score = population_->model.score(row.data());
    all[i] = {score, population_->clicked(score, sample)};
  }
  std::ranges::sort(all, {}, &Scored::score);
  // Pairs of a click and a sample without one in which the click has the larger score.
  double pairs = 0;
  double clicks = 0;
  double others = 0;
  for (size_t i = 0; i < all.size();) {
    double tied_clicks = 0;
    double tied_others = 0;
    for (const int64_t score = all[i].score; i < all.size() && all[i].score == score; ++i) {
      (all[i].clicked ? tied_clicks : tied_others) += 1;
    }
    pairs += tied_clicks * (others + tied_others / 2);
    clicks += tied_clicks;
    others += tied_others;
  }
  return clicks == 0 || others == 0 ? 0.5 : pairs / (clicks * others);
}

// The samples follow from these; `samples` only bounds the part that is in use.
void CtrDataset::add_contents(Hasher& hasher) const {
  const auto add = [&](const auto& value) { hasher.add(&value, sizeof(value)); };
  add(kVersion);
  for (const int64_t value :
       {options_.stream, options_.features, options_.ids, options_.numbers, options_.seed}) {
    add(value);
  }
  for (const double value : {options_.skew, options_.rate, options_.noise}) add(value);
  add(chosen_.first);
}

Result<std::unique_ptr<Dataset>> open_ctr(const config::SourceOptions& options) {
  MUSTER_TRY(auto dataset, CtrDataset::open(options));
  return std::unique_ptr<Dataset>(std::move(dataset));
}

}  // namespace muster::data
