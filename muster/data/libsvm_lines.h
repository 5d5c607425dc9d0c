// Lines of a label and ids while they are read: of a whole file, or of a block of one. Lines count
// from 1, as editors do.
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

// The samples one after the other, without the gaps.
class LibsvmLines {
 public:
  // `place` stands for the text in errors, as in "'x.libsvm' line 7". features: 0: as many as the
  // longest line has.
  LibsvmLines(std::string place, int64_t features)
      : place_(std::move(place)), features_(features) {}

  // `features` of the options' `args`, or 0. Errors: kJob.
  static Result<int64_t> features_of(const config::SourceOptions& options);
  // Whether there is more than a comment on the line.
  static bool is_sample(std::string_view line);

  // Errors: kData.
  Status read(std::string_view text);

  uint64_t rows() const { return clicked_.size(); }
  int64_t columns() const { return features_ > 0 ? features_ : longest_; }
  int64_t largest() const { return largest_; }
  Schema schema() const;
  const std::vector<int64_t>& ids() const { return ids_; }
  std::vector<int64_t> take_ids() { return std::move(ids_); }
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
  Result<int64_t> parse_id(std::string_view word) const;

  const std::string place_;
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

}  // namespace muster::data
