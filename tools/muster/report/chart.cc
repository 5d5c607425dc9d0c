#include "tools/muster/report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "muster/base/text.h"

#include "tools/muster/report/html.h"
#include "tools/muster/run_facts.h"

namespace muster::cli::report {
namespace {

using track::Axis;
using track::Curve;
using track::Point;

constexpr size_t kBuckets = 400;        // of steps; each keeps up to four points
constexpr size_t kNoisy = 120;          // curves with more points get a line of means too
constexpr double kSize = 1000;          // of the square that lines are drawn in
constexpr size_t kMostNotFinite = 200;  // marks

struct Frame {
  Axis x, y;
  double left(double step) const { return clean(x.place(step)); }
  double top(double value) const { return clean(1 - y.place(value)); }
  static double clean(double part) { return std::isfinite(part) ? std::clamp(part, 0.0, 1.0) : 0; }
};

// Short: a page may have tens of thousands of points.
std::string number(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string path_of(const std::vector<Point>& points, const Frame& frame) {
  std::string path;
  for (const auto& point : points) {
    path += path.empty() ? "M" : "L";
    path += number(kSize * frame.left(static_cast<double>(point.step)));
    path += " ";
    path += number(kSize * frame.top(point.value));
  }
  // A point alone, or few of them: a dot is a line of no length with round ends.
  if (points.size() == 1) path += "h0";
  return path;
}

std::string dots_of(const std::vector<Point>& points, const Frame& frame) {
  std::string path;
  for (const auto& point : points) {
    path += fmt::format("M{} {}h0", number(kSize * frame.left(static_cast<double>(point.step))),
                        number(kSize * frame.top(point.value)));
  }
  return path;
}

struct Values {
  track::Unit unit;
  bool whole = false;
};

std::string value_text(double value, const Values& values) {
  if (values.whole) return fmt::format("{:.0f}", value);
  const auto& unit = values.unit;
  return unit.name.empty() ? metric_text(value)
                           : fmt::format("{:.4g} {}", value * unit.factor, unit.name);
}

std::string curve_svg(const ChartCurve& each, const Frame& frame, const std::string& title) {
  const auto& points = each.curve->points;
  const auto style = each.style % kStyles;
  std::string svg = fmt::format("<g class=\"c{}\"><title>{}</title>", style, escaped(title));
  const bool noisy = points.size() > kNoisy && !each.curve->metric.starts_with("test/") &&
                     each.curve->metric != "lr";
  const auto shown = track::thinned(points, kBuckets);
  svg +=
      fmt::format("<path class=\"{}\" d=\"{}\"/>", noisy ? "raw" : "line", path_of(shown, frame));
  if (noisy) {
    const auto means = track::smoothed(points, points.size() / 50 + 1);
    svg += fmt::format("<path class=\"line\" d=\"{}\"/>",
                       path_of(track::thinned(means, kBuckets / 2), frame));
  }
  if (!points.empty() && points.size() <= 30) {
    svg += fmt::format("<path class=\"dots\" d=\"{}\"/>", dots_of(points, frame));
  }
  std::string bad;
  for (size_t i = 0; i < std::min(each.curve->not_finite.size(), kMostNotFinite); ++i) {
    bad += fmt::format("M{} 0v40",
                       number(kSize * frame.left(static_cast<double>(each.curve->not_finite[i]))));
  }
  if (!bad.empty()) svg += fmt::format("<path class=\"bad\" d=\"{}\"/>", bad);
  return svg + "</g>";
}

struct Extremes {
  Point low, high, last;
};

std::optional<Extremes> extremes_of(const Curve& curve) {
  if (curve.points.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(curve.points, {}, &Point::value);
  return Extremes{low, high, curve.points.back()};
}

std::string at_step(const Point& point, const Values& values) {
  return fmt::format("{} <span class=\"at\">step&nbsp;{}</span>", value_text(point.value, values),
                     with_commas(static_cast<uint64_t>(std::max<int64_t>(0, point.step))));
}

// Of one curve alone the name is that of the page.
std::string table_of(const std::vector<ChartCurve>& curves, const Values& values) {
  std::string rows;
  for (const auto& each : curves) {
    rows += "<tr>";
    if (curves.size() > 1) {
      rows += fmt::format("<th scope=\"row\" title=\"{0}\">{1}<span class=\"run\">{0}</span></th>",
                          escaped(each.run), swatch(each.style));
    }
    if (const auto found = extremes_of(*each.curve)) {
      rows += fmt::format("<td>{}</td><td>{}</td><td>{}</td>", at_step(found->last, values),
                          at_step(found->low, values), at_step(found->high, values));
    } else {
      rows += "<td>-</td><td>-</td><td>-</td>";
    }
    rows += "</tr>";
    if (const auto& bad = each.curve->not_finite; !bad.empty()) {
      rows += fmt::format(
          "<tr><td colspan=\"4\" class=\"warn\">{} not finite, the first at step {}; marked at the "
          "top</td></tr>",
          counted(bad.size(), "value"), std::ranges::min(bad));
    }
  }
  return fmt::format(
      "<table class=\"values\"><thead><tr>{}<th scope=\"col\">last</th><th "
      "scope=\"col\">lowest</th><th scope=\"col\">highest</th></tr></thead><tbody>{}</tbody>"
      "</table>",
      curves.size() > 1 ? "<th scope=\"col\">run</th>" : "", rows);
}

// What one hears who does not see it.
std::string label_of(const std::string& title, const std::vector<ChartCurve>& curves,
                     const Values& values) {
  std::string label = title + " by step.";
  for (const auto& each : curves) {
    const auto found = extremes_of(*each.curve);
    if (!found) continue;
    label +=
        fmt::format(" {}: last {} at step {}, lowest {}, highest {}.", each.run,
                    value_text(found->last.value, values), found->last.step,
                    value_text(found->low.value, values), value_text(found->high.value, values));
  }
  return label;
}

std::string grid_svg(const Frame& frame) {
  std::string path;
  for (const double tick : frame.y.ticks) {
    path += fmt::format("M0 {}H1000", number(kSize * frame.top(tick)));
  }
  for (const double tick : frame.x.ticks) {
    path += fmt::format("M{} 0V1000", number(kSize * frame.left(tick)));
  }
  return fmt::format("<path class=\"grid\" d=\"{}\"/>", path);
}

std::string axis_labels(const Frame& frame, double factor) {
  std::string y = "<div class=\"y\" aria-hidden=\"true\">";
  for (const double tick : frame.y.ticks) {
    y += fmt::format("<span style=\"top:{:.2f}%\">{}</span>", 100 * frame.top(tick),
                     track::tick_text(tick * factor));
  }
  std::string x = "<div class=\"x\" aria-hidden=\"true\">";
  for (const double tick : frame.x.ticks) {
    const double left = 100 * frame.left(tick);
    // At the edges labels lean inwards.
    const char* lean = left > 96 ? " class=\"end\"" : left < 4 ? " class=\"start\"" : "";
    x +=
        fmt::format("<span{} style=\"left:{:.2f}%\">{}</span>", lean, left, track::tick_text(tick));
  }
  return y + "</div>" + x + "</div>";
}

std::optional<Frame> frame_of(const std::vector<ChartCurve>& curves, track::Range& range) {
  std::vector<const Curve*> all;
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();
  const auto take = [&](int64_t step) {
    first = std::min(first, step);
    last = std::max(last, step);
  };
  for (const auto& each : curves) {
    all.push_back(each.curve);
    for (const auto& point : each.curve->points) take(point.step);
    for (const int64_t step : each.curve->not_finite) take(step);
  }
  const auto found = track::range_of(all);
  if (!found) return std::nullopt;
  range = *found;
  const auto& metric = curves.front().curve->metric;
  Frame frame{.x = track::make_step_axis(first, last, 5),
              .y = track::make_axis(range.low, range.high, track::suits_log(metric, range), 5)};
  if (track::is_count(metric)) track::keep_whole_ticks(frame.y);
  return frame;
}

}  // namespace

std::string swatch(size_t style) {
  return fmt::format(
      "<svg class=\"swatch c{}\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"line\" "
      "d=\"M0 4H24\"/></svg>",
      style % kStyles);
}

std::string chart(const std::string& metric, const std::vector<ChartCurve>& curves) {
  if (curves.empty()) return "";
  track::Range range;
  const auto frame = frame_of(curves, range);
  const std::string title = track::title_of(metric);
  const Values values{track::unit_of(metric, range.high), track::is_count(metric)};
  const auto& unit = values.unit;
  std::string figure = fmt::format("<figure class=\"chart\"><figcaption>{}", escaped(title));
  if (!unit.name.empty()) figure += fmt::format(" <small>in {}</small>", unit.name);
  if (frame && frame->y.log) figure += " <small>logarithmic</small>";
  figure += "</figcaption>";
  if (!frame) {
    figure += "<p class=\"empty\">no finite value</p>";
  } else {
    figure +=
        fmt::format("<div class=\"plot\" role=\"img\" aria-label=\"{}\">{}",
                    escaped(label_of(title, curves, values)), axis_labels(*frame, unit.factor));
    figure += "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">" + grid_svg(*frame);
    for (const auto& each : curves) {
      figure += curve_svg(each, *frame, fmt::format("{}: {}", each.run, title));
    }
    figure += "</svg></div>";
  }
  return figure + table_of(curves, values) + "</figure>\n";
}

}  // namespace muster::cli::report
