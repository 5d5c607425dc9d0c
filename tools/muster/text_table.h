// A table of text for people: columns aligned, cut to the width of the terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/muster/console.h"

namespace muster::cli {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;  // all empty: no line of titles
    Align align = Align::kLeft;
    bool may_shrink = false;  // cut, with an ellipsis, where the terminal is too narrow
  };
  struct Cell {
    std::string text;
    Paint paint = Paint::kPlain;
    Cell(std::string text, Paint paint = Paint::kPlain)  // NOLINT: implicit on purpose
        : text(std::move(text)), paint(paint) {}
    Cell(const char* text) : text(text) {}  // NOLINT: implicit on purpose
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  // Lines without trailing blanks, each ended by a newline.
  std::string render(const Console& console) const;

 private:
  std::vector<size_t> column_widths(int terminal_width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Columns that UTF-8 text takes on a terminal, counting one for each code point.
size_t display_width(std::string_view text);

// The text, or its start with an ellipsis, in at most `width` (at least 1) columns.
std::string shortened(std::string_view text, size_t width);

}  // namespace muster::cli
