// Cuts CSV text into records and fields; knows nothing of numbers. RFC 4180, and beyond it: LF
// alone ends a line, empty lines are skipped, a byte order mark at the start is ignored.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::data {

class CsvScanner {
 public:
  // `text` must outlive the scanner; `place` stands for it in errors, as in "'x.csv' line 7".
  CsvScanner(std::string_view text, char separator, std::string place);

  // The next record into `fields`, which stay valid until the next call. False at the end. Errors
  // (kData) say on which line a quote is not closed or not alone.
  Result<bool> next(std::vector<std::string_view>& fields);

  // Of the record that next() gave last, from 1.
  uint64_t line() const { return record_line_; }

  // Where the text behind that record begins.
  size_t position() const { return skipped_ + at_; }

 private:
  Result<std::string_view> quoted_field();
  std::string_view plain_field();
  // Steps over a line end, LF or CRLF, if there is one here.
  bool skip_line_end();

  const size_t skipped_;  // a byte order mark
  const std::string_view text_;
  const char separator_;
  const std::string place_;
  size_t at_ = 0;
  uint64_t line_ = 1;
  uint64_t record_line_ = 0;
  std::deque<std::string> unescaped_;  // fields of this record that had doubled quotes
};

}  // namespace muster::data
