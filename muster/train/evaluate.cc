#include "muster/train/evaluate.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "muster/base/check.h"

namespace muster::train {

double EvalReport::at(const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  MUSTER_CHECK(false, "no metric named " + name);
}

Result<EvalReport> evaluate(const data::Dataset& dataset, const NetPlan& plan, Team& team,
                            std::span<const std::unique_ptr<LaneNet>> nets, int64_t batch,
                            int64_t samples) {
  const uint64_t count =
      samples > 0 ? std::min(dataset.size(), static_cast<uint64_t>(samples)) : dataset.size();
  const uint64_t size = std::max<uint64_t>(1, static_cast<uint64_t>(batch));
  std::vector<LaneNet::Evaluation> parts((count + size - 1) / size);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::optional<Error> error;  // guarded by mutex
  team.run([&](int member) {
    data::Batch buffer;
    for (size_t i = next++; i < parts.size(); i = next++) {
      data::read_range(dataset, i * size, std::min(size, count - i * size), buffer);
      auto part = nets[static_cast<size_t>(member)]->evaluate(buffer);
      if (part.ok()) {
        parts[i] = *std::move(part);
        continue;
      }
      const std::lock_guard lock(mutex);
      if (!error) error = std::move(part).error();
      next = parts.size();
    }
  });
  if (error) return *std::move(error);

  LaneNet::Evaluation sum;
  sum.metrics.resize(plan.loss.metrics.size());
  for (const auto& part : parts) {
    sum.samples += part.samples;
    sum.loss += part.loss;
    for (size_t m = 0; m < sum.metrics.size(); ++m) {
      sum.metrics[m].first += part.metrics[m].first;
      sum.metrics[m].second += part.metrics[m].second;
    }
  }
  EvalReport report;
  report.samples = count;
  report.values.emplace_back("loss", sum.loss / std::max(1.0, sum.samples));
  for (size_t m = 0; m < sum.metrics.size(); ++m) {
    report.values.emplace_back(plan.loss.metrics[m].name,
                               sum.metrics[m].first / std::max(1.0, sum.metrics[m].second));
  }
  return report;
}

}  // namespace muster::train
