#include "muster/data/csv_scanner.h"

#include <utility>

namespace muster::data {

CsvScanner::CsvScanner(std::string_view text, char separator, std::string place)
    : skipped_(text.starts_with("\xef\xbb\xbf") ? 3 : 0),
      text_(text.substr(skipped_)),
      separator_(separator),
      place_(std::move(place)) {}

bool CsvScanner::skip_line_end() {
  size_t length = 0;
  if (text_.substr(at_).starts_with('\n')) length = 1;
  if (text_.substr(at_).starts_with("\r\n")) length = 2;
  if (length == 0) return false;
  at_ += length;
  ++line_;
  return true;
}

std::string_view CsvScanner::plain_field() {
  const size_t start = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
  // A carriage return belongs to the line end only if the line end follows.
  if (at_ > start && at_ < text_.size() && text_[at_] == '\n' && text_[at_ - 1] == '\r') --at_;
  return text_.substr(start, at_ - start);
}

Result<std::string_view> CsvScanner::quoted_field() {
  const uint64_t opened = line_;
  const size_t start = ++at_;  // after the quote
  bool doubled = false;
  while (true) {
    if (at_ >= text_.size()) {
      return Error(ErrorKind::kData, "{} line {}: a quote is opened and never closed; close it",
                   place_, opened);
    }
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] == '"') {
      if (!text_.substr(at_ + 1).starts_with('"')) break;
      doubled = true;
      ++at_;
    }
    ++at_;
  }
  std::string_view field = text_.substr(start, at_ - start);
  ++at_;
  const std::string_view rest = text_.substr(at_);
  if (!rest.empty() && rest[0] != separator_ && rest[0] != '\n' && !rest.starts_with("\r\n")) {
    return Error(ErrorKind::kData,
                 "{} line {}: there is text after a closing quote; double the quotes inside a "
                 "quoted field",
                 place_, line_);
  }
  if (doubled) {
    std::string& plain = unescaped_.emplace_back();
    for (size_t i = 0; i < field.size(); ++i) {
      plain.push_back(field[i]);
      if (field[i] == '"') ++i;
    }
    field = plain;
  }
  return field;
}

Result<bool> CsvScanner::next(std::vector<std::string_view>& fields) {
  fields.clear();
  unescaped_.clear();
  while (skip_line_end()) {
  }
  if (at_ >= text_.size()) return false;
  record_line_ = line_;
  while (true) {
    if (at_ < text_.size() && text_[at_] == '"') {
      MUSTER_TRY(fields.emplace_back(), quoted_field());
    } else {
      fields.push_back(plain_field());
    }
    if (at_ < text_.size() && text_[at_] == separator_) {
      ++at_;
      continue;
    }
    if (at_ < text_.size()) skip_line_end();
    return true;
  }
}

}  // namespace muster::data
