// Records of ids; see formats.h for what is read. Lines count from 1, as editors do.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

// A sample with more ids than this is taken for a mistake: a batch has room for as many in each.
constexpr int64_t kMostFeatures = 1 << 20;

// The next word of the line, which loses it; empty at its end.
std::string_view next_word(std::string_view& line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const auto word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size();
}

// The file while it is read: the samples one after the other, without the gaps.
class Lines {
 public:
  // features: 0: as many as the longest line has.
  Lines(std::string name, int64_t features) : name_(std::move(name)), features_(features) {}

  Status read(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
    for (number_ = 1; !text.empty(); ++number_) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      line = line.substr(0, line.find('#'));
      const std::string_view label = next_word(line);
      if (label.empty()) continue;
      MUSTER_RETURN_IF_ERROR(add_label(label));
      MUSTER_RETURN_IF_ERROR(add_ids(line));
    }
    if (clicked_.empty()) {
      return Error(ErrorKind::kData, "'{}' has no samples; use a file that has some", name_);
    }
    if (columns() == 0) {
      return Error(ErrorKind::kData,
                   "'{}' has labels, but no ids; a line is a label and then ids, separated by "
                   "spaces",
                   name_);
    }
    return {};
  }

  uint64_t rows() const { return clicked_.size(); }
  int64_t columns() const { return features_ > 0 ? features_ : longest_; }
  int64_t largest() const { return largest_; }
  const std::vector<int64_t>& ids() const { return ids_; }
  std::vector<int64_t> take_ids() { return std::move(ids_); }
  std::vector<uint64_t> take_starts() { return std::move(starts_); }
  std::vector<uint8_t> take_clicked() { return std::move(clicked_); }

 private:
  // An error at this line.
  template <typename... Args>
  Error wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(ErrorKind::kData, "'{}' line {}: {}", name_, number_,
                 fmt::format(format, std::forward<Args>(args)...));
  }

  Status add_label(std::string_view label) {
    const bool clicked = label == "1" || label == "+1";
    if (!clicked && label != "0" && label != "-1") {
      return wrong("the label is '{}', but labels are 0 and 1, or -1 and 1; correct it",
                   label.substr(0, 40));
    }
    if (!clicked) {
      // A file with both most likely has three classes.
      if (no_click_.empty()) {
        no_click_ = label;
        no_click_line_ = number_;
      } else if (label != no_click_) {
        return wrong(
            "the label is {}, but line {} has {}; labels are 0 and 1, or -1 and 1: use one "
            "of the two",
            label, no_click_line_, no_click_);
      }
    }
    clicked_.push_back(clicked ? 1 : 0);
    return {};
  }

  Status add_ids(std::string_view line) {
    const size_t before = ids_.size();
    for (auto word = next_word(line); !word.empty(); word = next_word(line)) {
      MUSTER_TRY(ids_.emplace_back(), parse_id(word));
      largest_ = std::max(largest_, ids_.back());
    }
    const auto count = static_cast<int64_t>(ids_.size() - before);
    if (features_ > 0 && count > features_) {
      return wrong(
          "it has {} ids, but `features` is {}; set it to the most that a line has, or "
          "shorten the line",
          count, features_);
    }
    if (count > kMostFeatures) {
      return wrong("it has {} ids, more than {}; split it", count, kMostFeatures);
    }
    longest_ = std::max(longest_, count);
    starts_.push_back(ids_.size());
    return {};
  }

  Result<int64_t> parse_id(std::string_view word) const {
    const size_t colon = word.find(':');
    int64_t id = 0;
    if (!parse(word.substr(0, colon), id) || id < 0) {
      return wrong(
          "'{}' is not an id, a whole number from 0 to 2^63 - 1, alone or with `:1`; "
          "correct it",
          word.substr(0, 40));
    }
    double value = 1;
    if (colon != std::string_view::npos && !parse(word.substr(colon + 1), value)) {
      return wrong("in '{}' there is no number behind the colon; write the id alone, or with `:1`",
                   word.substr(0, 40));
    }
    if (value != 1) {
      return wrong(
          "'{}' has another value than 1, but per-sample weights are not supported yet; "
          "write the id alone, or with `:1`",
          word.substr(0, 40));
    }
    return id;
  }

  const std::string name_;
  const int64_t features_;
  uint64_t number_ = 0;
  std::string no_click_;  // how the file writes it: 0 or -1; empty: not seen yet
  uint64_t no_click_line_ = 0;
  int64_t longest_ = 0;
  int64_t largest_ = 0;
  std::vector<int64_t> ids_;
  std::vector<uint64_t> starts_ = {0};  // in ids_, of each row, and the end
  std::vector<uint8_t> clicked_;
};

// Id: uint32_t where the ids allow it, which is half of the memory.
template <typename Id>
class LibsvmDataset final : public Dataset {
 public:
  LibsvmDataset(std::vector<Id> ids, std::vector<uint64_t> starts, std::vector<uint8_t> clicked,
                Schema schema, Slice chosen)
      : ids_(std::move(ids)),
        starts_(std::move(starts)),
        clicked_(std::move(clicked)),
        schema_(std::move(schema)),
        chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const uint64_t row = chosen_.first + index;
    auto* to = reinterpret_cast<int64_t*>(input);
    int64_t* end = to + schema_.input_elements();
    for (uint64_t i = starts_[row]; i < starts_[row + 1]; ++i)
      *to++ = static_cast<int64_t>(ids_[i]);
    std::fill(to, end, -1);
    *reinterpret_cast<int64_t*>(target) = clicked_[row];
  }

 private:
  // The rows without what fills their columns, and as int64: how ids are stored depends on others.
  void add_contents(Hasher& hasher) const override {
    std::vector<int64_t> row;
    for (uint64_t i = chosen_.first; i < chosen_.first + chosen_.count; ++i) {
      row = {clicked_[i], static_cast<int64_t>(starts_[i + 1] - starts_[i])};
      for (uint64_t at = starts_[i]; at < starts_[i + 1]; ++at) {
        row.push_back(static_cast<int64_t>(ids_[at]));
      }
      hasher.add(row.data(), row.size() * sizeof(row[0]));
    }
  }

  const std::vector<Id> ids_;
  const std::vector<uint64_t> starts_;
  const std::vector<uint8_t> clicked_;
  const Schema schema_;
  const Slice chosen_;
};

template <typename Id>
std::unique_ptr<Dataset> make(std::vector<Id> ids, Lines& lines, Slice chosen) {
  Schema schema;
  schema.input = DType::kInt64;
  schema.input_shape = {lines.columns()};
  schema.classes = 2;
  schema.has_ids = true;
  schema.ids_are_a_bag = true;
  return std::make_unique<LibsvmDataset<Id>>(std::move(ids), lines.take_starts(),
                                             lines.take_clicked(), std::move(schema), chosen);
}

}  // namespace

Result<std::unique_ptr<Dataset>> read_libsvm(ByteReader reader,
                                             const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format libsvm");
  int64_t features = 0;
  MUSTER_TRY(features, get_whole(args, "features", features, 1, kMostFeatures));
  MUSTER_RETURN_IF_ERROR(args.finish());
  MUSTER_TRY(const std::string text, reader.read_all());
  Lines lines(reader.name(), features);
  MUSTER_RETURN_IF_ERROR(lines.read(text));
  MUSTER_TRY(const Slice chosen, select_samples(options, lines.rows(), reader.name()));
  if (lines.largest() <= std::numeric_limits<uint32_t>::max()) {
    std::vector<uint32_t> ids(lines.ids().size());
    std::ranges::transform(lines.ids(), ids.begin(),
                           [](int64_t id) { return static_cast<uint32_t>(id); });
    return make(std::move(ids), lines, chosen);
  }
  return make(lines.take_ids(), lines, chosen);
}

Result<std::unique_ptr<Dataset>> open_libsvm(const config::SourceOptions& options) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob, "the format libsvm needs the file `path`");
  }
  MUSTER_TRY(auto reader, ByteReader::open(options.path));
  return read_libsvm(std::move(reader), options);
}

}  // namespace muster::data
