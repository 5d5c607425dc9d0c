#include "muster/track/curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "muster/base/stable_sort.h"
#include "muster/track/visit_metrics.h"

namespace muster::track {
namespace {

using nlohmann::json;

// What is not measured but counted, or says where a record belongs.
constexpr std::array<std::string_view, 6> kNoMetrics = {"step",     "pass", "samples",
                                                        "rollback", "time", "links"};

// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

void add_ticks(Axis& axis, double step) {
  const double first = std::ceil(axis.low / step - 1e-6);
  const double last = std::floor(axis.high / step + 1e-6);
  // An axis of numbers so large that a step vanishes in them has no ticks.
  for (double i = first; i <= last && i - first < 100; ++i) {
    const double tick = i * step;
    axis.ticks.push_back(std::fabs(tick) < step * 1e-6 ? 0 : tick);
  }
}

void add_log_ticks(Axis& axis, int ticks) {
  const double decades = std::log10(axis.high / axis.low);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / ticks)));
  const bool between = decades < ticks / 2.0;
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  for (int power = first; std::pow(10, power) <= axis.high * (1 + 1e-9); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !between) continue;
      if (factor == 1 && power % every != 0) continue;
      const double tick = factor * std::pow(10, power);
      if (tick >= axis.low * (1 - 1e-9) && tick <= axis.high * (1 + 1e-9)) {
        axis.ticks.push_back(tick);
      }
    }
  }
}

}  // namespace

void CurveCollector::add(std::vector<Metric>& metrics, const std::string& name, const json& value,
                         Value at) {
  if (!value.is_number() && !value.is_null()) return;
  at.value = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  auto found = std::ranges::find(metrics, name, &Metric::name);
  if (found == metrics.end()) found = metrics.insert(found, {name, {}});
  found->values.push_back(at);
}

void CurveCollector::take(const json& record) {
  const Value at{record["step"].get<int64_t>(), 0, rollback_of(record)};
  if (const auto test = record.find("test"); test != record.end()) {
    if (!test->is_object()) return;
    for (const auto& [name, value] : test->items()) add(tests_, "test/" + name, value, at);
    return;
  }
  for (const auto& [name, value] : record.items()) {
    if (std::ranges::find(kNoMetrics, name) == kNoMetrics.end()) add(steps_, name, value, at);
  }
}

void CurveCollector::drop(int64_t step, uint64_t rollback) {
  for (auto* metrics : {&steps_, &tests_}) {
    for (auto& metric : *metrics) {
      std::erase_if(metric.values, [&](const Value& value) {
        return value.step >= step && value.rollback < rollback;
      });
    }
  }
}

std::vector<Curve> CurveCollector::curves() {
  std::vector<Curve> curves;
  for (auto* metrics : {&steps_, &tests_}) {
    for (auto& metric : *metrics) {
      Curve curve{metric.name, {}, {}};
      const auto values = std::exchange(metric.values, {});
      for (const auto& [step, value, rollback] : values) {
        if (std::isfinite(value)) {
          curve.points.push_back({step, value});
        } else {
          curve.not_finite.push_back(step);
        }
      }
      // Workers that take turns may have written lines out of order.
      sort_stable(curve.points, {}, &Point::step);
      if (!values.empty()) curves.push_back(std::move(curve));
    }
    metrics->clear();
  }
  // The loss first, wherever the alphabet has it.
  partition_stable(curves, [](const Curve& c) { return c.metric == "loss"; });
  return curves;
}

std::vector<Curve> curves_of(const Metrics& metrics) {
  CurveCollector collector;
  for (const auto& record : metrics.records) collector.take(record);
  return collector.curves();
}

Result<std::vector<Curve>> read_curves(FileSystem& files, const std::string& path) {
  CurveCollector collector;
  MetricsVisitor visitor;
  visitor.take = [&](const json& record) { collector.take(record); };
  visitor.drop = [&](int64_t step, uint64_t rollback) { collector.drop(step, rollback); };
  MUSTER_TRY([[maybe_unused]] const auto skipped, visit_metrics(files, path, visitor));
  return collector.curves();
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t buckets) {
  if (buckets == 0 || points.size() <= 4 * buckets) return points;
  const auto first = static_cast<double>(points.front().step);
  const double width =
      (static_cast<double>(points.back().step) - first + 1) / static_cast<double>(buckets);
  std::vector<Point> kept;
  for (size_t begin = 0; begin < points.size();) {
    const double end_step =
        first + width * (std::floor((static_cast<double>(points[begin].step) - first) / width) + 1);
    size_t end = begin + 1;
    size_t low = begin;
    size_t high = begin;
    for (; end < points.size() && static_cast<double>(points[end].step) < end_step; ++end) {
      if (points[end].value < points[low].value) low = end;
      if (points[end].value > points[high].value) high = end;
    }
    std::array<size_t, 4> taken = {begin, low, high, end - 1};
    std::ranges::sort(taken);
    const auto rest = std::ranges::unique(taken);
    for (auto it = taken.begin(); it != rest.begin(); ++it) kept.push_back(points[*it]);
    begin = end;
  }
  return kept;
}

std::vector<Point> smoothed(const std::vector<Point>& points, size_t reach) {
  std::vector<double> sums = {0};
  for (const auto& point : points) sums.push_back(sums.back() + point.value);
  std::vector<Point> means;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t begin = i - std::min(i, reach);
    const size_t end = std::min(points.size(), i + reach + 1);
    means.push_back({points[i].step, (sums[end] - sums[begin]) / static_cast<double>(end - begin)});
  }
  return means;
}

double Axis::place(double value) const {
  if (log) return std::log(value / low) / std::log(high / low);
  // Halves: the difference of the largest numbers is not finite.
  return (value / 2 - low / 2) / (high / 2 - low / 2);
}

Axis make_axis(double low, double high, bool log, int ticks) {
  Axis axis;
  axis.log = log && low > 0;
  if (axis.log) {
    // Not to whole decades: half of the picture would be empty.
    axis.low = low == high ? low / 2 : low;
    axis.high = low == high ? high * 2 : high;
    add_log_ticks(axis, ticks);
    return axis;
  }
  if (!(high > low)) {
    const double around = low == 0 ? 1 : std::fabs(low) / 2;
    low -= low == 0 ? 0 : around;
    high += around;
  }
  // Differences of the largest numbers overflow.
  const double span = std::min(high / 2 - low / 2, std::numeric_limits<double>::max() / 8) * 2;
  const double step = round_step(std::max(span / ticks, std::numeric_limits<double>::min()));
  axis.low = std::floor(low / step + 1e-6) * step;
  axis.high = std::ceil(high / step - 1e-6) * step;
  add_ticks(axis, step);
  return axis;
}

Axis make_step_axis(int64_t low, int64_t high, int ticks) {
  Axis axis;
  axis.low = static_cast<double>(low);
  axis.high = std::max(static_cast<double>(high), axis.low + 1);
  add_ticks(axis, std::max(1.0, round_step((axis.high - axis.low) / ticks)));
  return axis;
}

std::optional<Range> range_of(const std::vector<const Curve*>& curves) {
  std::optional<Range> range;
  for (const auto* curve : curves) {
    for (const auto& point : curve->points) {
      if (!range) range = {point.value, point.value};
      range->low = std::min(range->low, point.value);
      range->high = std::max(range->high, point.value);
    }
  }
  return range;
}

bool suits_log(std::string_view metric, Range range) {
  // Of times of waiting those that are next to nothing do not matter. A learning rate that goes to
  // 0 as a cosine would look like a cliff.
  return metric != "waited" && metric != "lr" && range.low > 0 && range.high / range.low >= 50;
}

bool is_count(std::string_view metric) { return metric == "gradient_bits" || metric == "replaced"; }

void keep_whole_ticks(Axis& axis) {
  std::erase_if(axis.ticks, [](double tick) { return tick != std::round(tick); });
}

std::string tick_text(double value) {
  const double size = std::fabs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return fmt::format("{:.4g}", value);
  for (const auto& [unit, letter] :
       {std::pair(1e12, "T"), std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (size >= unit) return fmt::format("{:.6g}{}", value / unit, letter);
  }
  return fmt::format("{:.6g}", value);
}

Unit unit_of(std::string_view metric, double largest) {
  if (metric != "seconds" && metric != "waited") return {};
  if (largest < 1) return {"ms", 1e3};
  return {"s", 1};
}

std::string title_of(std::string_view metric) {
  if (metric == "seconds") return "step time";
  if (metric == "waited") return "waiting for other workers";
  if (metric == "lr") return "learning rate";
  if (metric == "gradient_norm") return "norm of the gradient";
  if (metric == "gradient_bits") return "gradient bits, fewest of all blocks";
  if (metric == "replaced") return "samples replaced";
  if (metric == "loss") return "training loss";
  if (metric.starts_with("test/")) return fmt::format("test {}", metric.substr(5));
  return std::string(metric);
}

}  // namespace muster::track
