// Curves of a run's metrics, and what is needed to draw them: fewer points, axes, ticks.
//
// Pure functions; nothing here draws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/track/metrics.h"

namespace muster::track {

struct Point {
  int64_t step = 0;
  double value = 0;
  bool operator==(const Point&) const = default;
};

struct Curve {
  std::string metric;         // "loss", "lr"; of evaluations "test/accuracy"
  std::vector<Point> points;  // of finite values, by step
  // Steps whose value was not finite: metrics say null there.
  std::vector<int64_t> not_finite;
};

// Makes curves of records as visit_metrics has them.
class CurveCollector {
 public:
  void take(const nlohmann::json& record);
  void drop(int64_t step, uint64_t rollback);
  // The numbers in the records but those that only count (samples, pass, time), by metric, in the
  // order in which they appear; those of evaluations last. Leaves nothing behind.
  std::vector<Curve> curves();

 private:
  struct Value {
    int64_t step;
    double value;
    uint64_t rollback;
  };
  struct Metric {
    std::string name;
    std::vector<Value> values;
  };
  void add(std::vector<Metric>& metrics, const std::string& name, const nlohmann::json& value,
           Value at);
  std::vector<Metric> steps_, tests_;
};

std::vector<Curve> curves_of(const Metrics& metrics);
// Of a run's metrics.jsonl; none if there is no such file.
Result<std::vector<Curve>> read_curves(FileSystem& files, const std::string& path);

// At most about 4 * `buckets` of the points that look like all of them: of each bucket of steps the
// first, the smallest, the largest and the last, so that no peak is lost.
std::vector<Point> thinned(const std::vector<Point>& points, size_t buckets);

// The mean of each point and its neighbours, up to `reach` on each side.
std::vector<Point> smoothed(const std::vector<Point>& points, size_t reach);

struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  std::vector<double> ticks;  // ascending, within low and high

  // 0 at low, 1 at high.
  double place(double value) const;
};

// From `low` to `high` or a little further, with about so many ticks at round numbers. `log` only
// if low is above 0.
Axis make_axis(double low, double high, bool log, int ticks);
// With ticks at whole numbers, from `low` to exactly `high`.
Axis make_step_axis(int64_t low, int64_t high, int ticks);

struct Range {
  double low = 0;
  double high = 0;
};
// Of the values of all curves; nothing if there are none.
std::optional<Range> range_of(const std::vector<const Curve*>& curves);
// Whether a logarithmic axis shows these better: all are above 0, and far apart.
bool suits_log(std::string_view metric, Range range);
// Whether its values are whole numbers.
bool is_count(std::string_view metric);
// For an axis of such values.
void keep_whole_ticks(Axis& axis);

// A round number for people: "0.25", "1e-05", "20k", "1.5M".
std::string tick_text(double value);

// How values of a metric are written: times that are short in milliseconds.
struct Unit {
  std::string name;   // "ms"; empty: none
  double factor = 1;  // what a value is multiplied by
};
Unit unit_of(std::string_view metric, double largest);

// For people: "step time" of "seconds".
std::string title_of(std::string_view metric);

}  // namespace muster::track
