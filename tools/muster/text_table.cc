#include "tools/muster/text_table.h"

#include <algorithm>
#include <numeric>

namespace muster::cli {
namespace {

constexpr std::string_view kGap = "  ";
constexpr size_t kNarrowest = 8;  // columns that a shrinking column keeps

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// A cell is one line: whatever would break the table is shown as a blank.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return line;
}

}  // namespace

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string shortened(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  size_t end = 0;
  for (size_t kept = 0; end < text.size(); ++end) {
    if (starts_character(text[end]) && ++kept == width) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

void TextTable::add(std::vector<Cell> row) {
  MUSTER_CHECK(row.size() == columns_.size(), "a row has as many cells as there are columns");
  for (auto& cell : row) cell.text = one_line(cell.text);
  rows_.push_back(std::move(row));
}

std::vector<size_t> TextTable::column_widths(int terminal_width) const {
  std::vector<size_t> widths;
  for (const auto& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i].text));
    }
  }
  if (terminal_width <= 0) return widths;
  size_t total = std::accumulate(widths.begin(), widths.end(), kGap.size() * (widths.size() - 1));
  // Take from the widest column that may shrink until the table fits or none has any to give.
  while (total > static_cast<size_t>(terminal_width)) {
    size_t widest = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!columns_[i].may_shrink || widths[i] <= kNarrowest) continue;
      if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
    --total;
  }
  return widths;
}

std::string TextTable::render(const Console& console) const {
  const auto widths = column_widths(console.width());
  std::string text;
  const auto add_line = [&](auto&& cell_of) {
    std::string line;
    size_t blanks = 0;  // owed before the next visible character
    for (size_t i = 0; i < columns_.size(); ++i) {
      const auto [content, paint] = cell_of(i);
      const std::string shown = shortened(content, std::max<size_t>(widths[i], 1));
      const size_t pad = widths[i] - std::min(widths[i], display_width(shown));
      const bool right = columns_[i].align == Align::kRight;
      if (i > 0) blanks += kGap.size();
      if (right) blanks += pad;
      if (!shown.empty()) {
        line.append(blanks, ' ');
        blanks = 0;
        line += console.painted(paint, shown);
      }
      if (!right) blanks += pad;
    }
    text += line + "\n";
  };
  const bool titled = std::any_of(columns_.begin(), columns_.end(),
                                  [](const Column& column) { return !column.title.empty(); });
  if (titled) {
    add_line([&](size_t i) { return std::pair(columns_[i].title, Paint::kBold); });
  }
  for (const auto& row : rows_) {
    add_line([&](size_t i) { return std::pair(row[i].text, row[i].paint); });
  }
  return text;
}

}  // namespace muster::cli
