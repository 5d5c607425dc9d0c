// Lines of a label and ids, with or without values, while they are read: of a whole file, or of a
// block of one. Lines count from 1, as editors do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/schema.h"

namespace muster::data {

// What `args` of the format says.
struct LibsvmOptions {
  int64_t features = 0;  // columns of ids; 0: as many as the longest line has
  bool values = false;   // ids have values of their own
};

// The samples one after the other, without the gaps.
class LibsvmLines {
 public:
  // `place` stands for the text in errors, as in "'x.libsvm' line 7".
  LibsvmLines(std::string place, const LibsvmOptions& options)
      : place_(std::move(place)), options_(options) {}

  // Errors: kJob.
  static Result<LibsvmOptions> options_of(const config::SourceOptions& options);
  // Whether there is more than a comment on the line.
  static bool is_sample(std::string_view line);

  // Errors: kData.
  Status read(std::string_view text);

  uint64_t rows() const { return clicked_.size(); }
  // Of ids.
  int64_t columns() const { return options_.features > 0 ? options_.features : longest_; }
  int64_t largest() const { return largest_; }
  Schema schema() const;
  const std::vector<int64_t>& ids() const { return ids_; }
  std::vector<int64_t> take_ids() { return std::move(ids_); }
  // One for each id; empty if they have none.
  std::vector<float> take_values() { return std::move(values_); }
  std::vector<uint64_t> take_starts() { return std::move(starts_); }
  std::vector<uint8_t> take_clicked() { return std::move(clicked_); }

 private:
  // An error at this line.
  template <typename... Args>
  Error wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(ErrorKind::kData, "{} line {}: {}", place_, number_,
                 fmt::format(format, std::forward<Args>(args)...));
  }
  Status add_label(std::string_view label);
  Status add_ids(std::string_view line);
  // "7", "7:1" or, with values, "7:0.5".
  Status add_id(std::string_view word);
  Result<float> parse_value(std::string_view word, std::string_view value) const;

  const std::string place_;
  const LibsvmOptions options_;
  uint64_t number_ = 0;
  std::string no_click_;  // how the file writes it: 0 or -1; empty: not seen yet
  uint64_t no_click_line_ = 0;
  int64_t longest_ = 0;
  int64_t largest_ = 0;
  std::vector<int64_t> ids_;
  std::vector<float> values_;           // of each id, with options_.values
  std::vector<uint64_t> starts_ = {0};  // in ids_, of each row, and the end
  std::vector<uint8_t> clicked_;
};

}  // namespace muster::data
