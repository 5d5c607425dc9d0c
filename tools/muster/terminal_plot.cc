#include "tools/muster/terminal_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "muster/base/text.h"

#include "tools/muster/run_facts.h"
#include "tools/muster/text_table.h"

namespace muster::cli {
namespace {

using track::Axis;
using track::Curve;

constexpr std::array kColours = {"\033[36m", "\033[33m", "\033[35m",
                                 "\033[32m", "\033[34m", "\033[31m"};
constexpr std::string_view kMarks = "*o+x#@%&";

std::string coloured(size_t curve, std::string_view text) {
  return fmt::format("{}{}\033[0m", kColours[curve % kColours.size()], text);
}

// Dots in cells of a terminal: 2 by 4 in each as braille, otherwise 1 by 1.
class Canvas {
 public:
  Canvas(int columns, int lines, bool braille)
      : columns_(columns),
        lines_(lines),
        across_(braille ? 2 : 1),
        down_(braille ? 4 : 1),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(lines)) {}

  int width() const { return columns_ * across_; }
  int height() const { return lines_ * down_; }

  void dot(int x, int y, size_t curve) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    Cell& cell = cells_[place(x / across_, y / down_)];
    // U+2800 and these bits, by column and line within the cell.
    constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    cell.bits |= across_ == 1 ? 1 : kBits[x % 2][y % 4];
    cell.curve = curve;
  }

  // Bresenham's.
  void line(int x0, int y0, int x1, int y1, size_t curve) {
    const int dx = std::abs(x1 - x0);
    const int dy = -std::abs(y1 - y0);
    for (int error = dx + dy;;) {
      dot(x0, y0, curve);
      if (x0 == x1 && y0 == y1) return;
      const int twice = 2 * error;
      if (twice >= dy) {
        error += dy;
        x0 += x0 < x1 ? 1 : -1;
      }
      if (twice <= dx) {
        error += dx;
        y0 += y0 < y1 ? 1 : -1;
      }
    }
  }

  std::string text_of_line(int line, bool colour) const {
    std::string text;
    for (int i = 0; i < columns_; ++i) {
      const Cell& cell = cells_[place(i, line)];
      if (cell.bits == 0) {
        text += ' ';
        continue;
      }
      const std::string glyph = across_ == 1 ? std::string(1, kMarks[cell.curve % kMarks.size()])
                                             : to_utf8(0x2800U + cell.bits);
      text += colour ? coloured(cell.curve, glyph) : glyph;
    }
    return text;
  }

 private:
  struct Cell {
    uint8_t bits = 0;
    size_t curve = 0;  // the last that was drawn here
  };
  size_t place(int column, int line) const {
    return static_cast<size_t>(line) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }

  int columns_;
  int lines_;
  int across_;
  int down_;
  std::vector<Cell> cells_;
};

void draw(const Curve& curve, size_t number, const Axis& x_axis, const Axis& y_axis,
          Canvas& canvas) {
  const auto place = [](double part, int size) {
    return std::isfinite(part) ? static_cast<int>(std::lround(part * (size - 1))) : 0;
  };
  std::optional<std::pair<int, int>> before;
  for (const auto& point : track::thinned(curve.points, static_cast<size_t>(canvas.width()))) {
    const int x = place(x_axis.place(static_cast<double>(point.step)), canvas.width());
    const int y = canvas.height() - 1 - place(y_axis.place(point.value), canvas.height());
    const auto from = before.value_or(std::pair(x, y));
    canvas.line(from.first, from.second, x, y, number);
    before = {x, y};
  }
}

// Right-aligned labels of the lines that have a tick.
std::vector<std::string> labels_of(const Axis& axis, int lines, double factor) {
  std::vector<std::string> labels(static_cast<size_t>(lines));
  for (const double tick : axis.ticks) {
    const double part = axis.place(tick);
    const auto line = static_cast<size_t>(std::lround((1 - part) * (lines - 1)));
    if (line < labels.size()) labels[line] = track::tick_text(tick * factor);
  }
  return labels;
}

// The line below the picture, and that of the numbers.
std::string step_axis(const Axis& axis, size_t margin, int columns, bool ascii) {
  std::string line;
  std::string numbers(margin + static_cast<size_t>(columns) + 1, ' ');
  std::vector<bool> ticks(static_cast<size_t>(columns));
  size_t free_from = 0;
  for (const double tick : axis.ticks) {
    const auto column = static_cast<size_t>(std::lround(axis.place(tick) * (columns - 1)));
    const auto label = track::tick_text(tick);
    if (column >= ticks.size()) continue;
    size_t at = margin + 1 + column;
    at -= std::min(at, label.size() / 2);
    at = std::min(at, numbers.size() - std::min(numbers.size(), label.size()));
    if (at < free_from || at + label.size() > numbers.size()) continue;
    ticks[column] = true;
    numbers.replace(at, label.size(), label);
    free_from = at + label.size() + 2;
  }
  for (const bool tick : ticks) line += tick ? (ascii ? "+" : "┬") : (ascii ? "-" : "─");
  numbers.erase(numbers.find_last_not_of(' ') + 1);
  return fmt::format("{}{}{}\n{}\n", std::string(margin, ' '), ascii ? "+" : "└", line, numbers);
}

std::string value_text(double value, std::string_view metric, const track::Unit& unit) {
  if (track::is_count(metric)) return fmt::format("{:.0f}", value);
  return unit.name.empty() ? metric_text(value)
                           : fmt::format("{:.4g} {}", value * unit.factor, unit.name);
}

std::string legend(const std::vector<PlotCurve>& curves, const track::Unit& unit, bool marks,
                   const PlotStyle& style) {
  std::string text;
  for (size_t i = 0; i < curves.size(); ++i) {
    const auto& points = curves[i].curve.points;
    const auto text_of = [&](const track::Point& point) {
      return value_text(point.value, curves[i].curve.metric, unit);
    };
    std::string line = marks ? std::string(1, kMarks[i % kMarks.size()]) + " " : "";
    line += curves[i].name;
    const std::string name = style.colour ? coloured(i, line) : line;
    std::string facts;
    if (!points.empty()) {
      const auto [low, high] = std::ranges::minmax(points, {}, &track::Point::value);
      facts =
          fmt::format(": {} at step {}, lowest {} at {}, highest {} at {}", text_of(points.back()),
                      points.back().step, text_of(low), low.step, text_of(high), high.step);
    }
    if (const auto& bad = curves[i].curve.not_finite; !bad.empty()) {
      facts += fmt::format("{} {} not finite, first at step {}", facts.empty() ? ":" : ",",
                           counted(bad.size(), "value"), *std::ranges::min_element(bad));
    }
    text += fmt::format("  {}{}\n", name, facts);
  }
  return text;
}

}  // namespace

std::string terminal_plot(const std::vector<PlotCurve>& curves, const PlotStyle& style) {
  std::vector<const Curve*> all;
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();
  for (const auto& each : curves) {
    all.push_back(&each.curve);
    if (each.curve.points.empty()) continue;
    first = std::min(first, each.curve.points.front().step);
    last = std::max(last, each.curve.points.back().step);
  }
  if (all.empty()) return "";
  const auto range = track::range_of(all);
  const bool marks = style.ascii || (curves.size() > 1 && !style.colour);
  const std::string metric = track::title_of(all.front()->metric);
  if (!range) {
    return fmt::format("{}: no finite value\n{}", metric, legend(curves, {}, marks, style));
  }
  const auto unit = track::unit_of(all.front()->metric, range->high);
  const bool log = track::suits_log(all.front()->metric, *range);
  Axis y_axis = track::make_axis(range->low, range->high, log, std::max(2, style.height / 3));
  if (track::is_count(all.front()->metric)) track::keep_whole_ticks(y_axis);
  const auto labels = labels_of(y_axis, style.height, unit.factor);
  size_t margin = 0;
  for (const auto& label : labels) margin = std::max(margin, label.size());
  ++margin;
  const int columns = std::max(10, style.width - static_cast<int>(margin) - 1);
  const Axis x_axis = track::make_step_axis(first, last, std::max(2, columns / 12));

  Canvas canvas(columns, style.height, !marks);
  for (size_t i = 0; i < curves.size(); ++i) draw(curves[i].curve, i, x_axis, y_axis, canvas);

  std::string text = metric;
  if (!unit.name.empty()) text += fmt::format(" in {}", unit.name);
  if (log) text += " (logarithmic)";
  text += ", by step\n";
  for (int line = 0; line < style.height; ++line) {
    const auto& label = labels[static_cast<size_t>(line)];
    std::string row =
        fmt::format("{:>{}}{}{}", label, margin - 1,
                    style.ascii ? (label.empty() ? " |" : " +") : (label.empty() ? " │" : " ┤"),
                    canvas.text_of_line(line, style.colour));
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text + step_axis(x_axis, margin, columns, style.ascii) +
         legend(curves, unit, marks, style);
}

}  // namespace muster::cli
