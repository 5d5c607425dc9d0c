// Curves as text: braille dots, or characters where those cannot be told apart or shown.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/track/curves.h"

namespace muster::cli {

struct PlotStyle {
  int width = 80;       // columns in all
  int height = 12;      // lines of the picture, without axis and legend
  bool colour = false;  // curves are told apart by colours; otherwise several by characters
  bool ascii = false;   // characters for a single curve too
};

struct PlotCurve {
  std::string name;  // of the run
  track::Curve curve;
};

// One picture with title, axes, and a line for each curve that says where it ends and what its
// lowest and highest values are. All curves are of one metric.
std::string terminal_plot(const std::vector<PlotCurve>& curves, const PlotStyle& style);

}  // namespace muster::cli
