// One chart of a report: curves of one metric, of several runs, as inline SVG with axes in HTML.
//
// The picture stretches to any width without stretching its text: lines are drawn in a square that
// is scaled both ways, labels are placed beside it by percentages. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/track/curves.h"

namespace muster::cli::report {

struct ChartCurve {
  std::string run;   // its title
  size_t style = 0;  // which colour and dashes: of a run the same in all charts
  const track::Curve* curve = nullptr;
};

// A figure with a table below it that names the last, lowest and highest value of each curve. Empty
// without curves.
std::string chart(const std::string& metric, const std::vector<ChartCurve>& curves);

// How many runs have a style of their own.
inline constexpr size_t kStyles = 8;
// The short line that stands for a run in tables.
std::string swatch(size_t style);

}  // namespace muster::cli::report
