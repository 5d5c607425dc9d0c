#include "muster/train/evaluate.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/data/read_ahead.h"

namespace muster::train {

double EvalReport::at(const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  MUSTER_CHECK(false, "no metric named " + name);
}

namespace {

// The sums of one batch as they travel: samples, loss, then a sum and a count for each metric.
constexpr size_t kFixed = 2;

// Each row was filled in by one member and is zero on all others. So the bytewise maximum is that
// row, bit for bit, whatever it holds; and it is one collective for any number of members and
// shares, where an allgather would need parts of equal size.
Status gather_rows(std::span<double> rows, comm::Group& group, const comm::OpOptions& options) {
  const std::span bytes(reinterpret_cast<uint8_t*>(rows.data()), rows.size_bytes());
  return group.allreduce_max(bytes, options);
}

// Adds up the bins of all members; afterwards all have the sum.
Status sum_bins(std::span<double> bins, comm::Group& group, const comm::OpOptions& options) {
  std::vector<double> all(bins.size() * static_cast<size_t>(group.size()));
  const std::span own =
      std::span(all).subspan(bins.size() * static_cast<size_t>(group.rank()), bins.size());
  std::ranges::copy(bins, own.begin());
  MUSTER_RETURN_IF_ERROR(gather_rows(all, group, options));
  std::ranges::fill(bins, 0.0);
  for (size_t i = 0; i < all.size(); ++i) bins[i % bins.size()] += all[i];
  return {};
}

// `sums`: of all batches, a sum and a count for each metric. `bins`: those of all metrics.
void add_metrics(const std::vector<model::Metric>& metrics, std::span<const double> sums,
                 std::span<const double> bins, EvalReport& report) {
  for (size_t m = 0; m < metrics.size(); ++m) {
    const auto& metric = metrics[m];
    const double value = metric.bins > 0 ? metric.finish(bins.first(metric.bins))
                                         : sums[2 * m] / std::max(1.0, sums[2 * m + 1]);
    report.values.emplace_back(metric.name, value);
    bins = bins.subspan(metric.bins);
  }
}

}  // namespace

comm::Part part_by_share(size_t count, size_t rank, std::span<const size_t> shares) {
  const size_t all = std::accumulate(shares.begin(), shares.end(), size_t{0});
  MUSTER_CHECK(all > 0, "somebody must have a share");
  const auto before = shares.first(rank);
  const size_t begin = std::accumulate(before.begin(), before.end(), size_t{0});
  const size_t first = count * begin / all;
  return {first, count * (begin + shares[rank]) / all - first};
}

Result<EvalReport> evaluate(const data::Dataset& dataset, const NetPlan& plan, Team& team,
                            std::span<const std::unique_ptr<LaneNet>> nets, int64_t batch,
                            int64_t samples, const EvalGroup& with) {
  const uint64_t count =
      samples > 0 ? std::min(dataset.size(), static_cast<uint64_t>(samples)) : dataset.size();
  const uint64_t size = std::max<uint64_t>(1, static_cast<uint64_t>(batch));
  const size_t batches = (count + size - 1) / size;
  const size_t width = kFixed + 2 * plan.loss.metrics.size();
  const comm::Part own =
      with.group != nullptr
          ? part_by_share(batches, static_cast<size_t>(with.group->rank()), with.shares)
          : comm::Part{0, batches};
  std::vector<double> parts(batches * width);
  std::vector<double> bins(plan.loss.bins());  // guarded by mutex
  std::atomic<size_t> next{own.begin};
  std::mutex mutex;
  std::optional<Error> error;  // guarded by mutex
  data::ReadAhead ahead(dataset, std::min(count, own.begin * size),
                        std::min(count, (own.begin + own.size) * size), size, nets.size());
  // Then nobody waits for this member's part any more.
  const auto has_lost = [&] { return with.group != nullptr && with.group->failed(); };
  team.run([&](int member) {
    data::Batch buffer;
    buffer.memory = plan.memory;
    for (size_t i = next++; i < own.begin + own.size && !has_lost(); i = next++) {
      const auto fail = [&](Error why) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::move(why);
        next = batches;
      };
      // Waiting for data that is streamed is no hang.
      const auto keep_waiting = [&] {
        if (with.vitals != nullptr) with.vitals->note_progress();
        return !has_lost() && (!with.keep_waiting || with.keep_waiting());
      };
      auto read = data::read_range(dataset, i * size, std::min(size, count - i * size), buffer,
                                   keep_waiting);
      if (!read.ok()) return fail(std::move(read).error());
      ahead.done(i - own.begin);
      auto part = nets[static_cast<size_t>(member)]->evaluate(buffer);
      if (!part.ok()) return fail(std::move(part).error());
      if (with.vitals != nullptr) with.vitals->note_progress();
      double* row = parts.data() + i * width;
      row[0] = part->samples;
      row[1] = part->loss;
      for (size_t m = 0; m < part->metrics.size(); ++m) {
        row[kFixed + 2 * m] = part->metrics[m].first;
        row[kFixed + 2 * m + 1] = part->metrics[m].second;
      }
      if (bins.empty()) continue;
      // Whole numbers: the sum is exact, so it does not matter which batch is added first.
      const std::lock_guard lock(mutex);
      std::ranges::transform(bins, part->bins, bins.begin(), std::plus<>());
    }
  });
  if (error && error->kind() != ErrorKind::kInterrupted) return *std::move(error);
  if (has_lost()) return Error(ErrorKind::kInternal, "the group failed during the evaluation");
  if (error) return *std::move(error);
  if (with.group != nullptr) {
    fault_point(FaultPoint::kEvaluation);
    const Vitals none;
    const WaitingForPeers waiting(with.vitals != nullptr ? *with.vitals : none);
    MUSTER_RETURN_IF_ERROR(gather_rows(parts, *with.group, with.options));
    if (!bins.empty()) MUSTER_RETURN_IF_ERROR(sum_bins(bins, *with.group, with.options));
  }
  std::vector<double> sum(width, 0);
  for (size_t i = 0; i < parts.size(); ++i) sum[i % width] += parts[i];
  EvalReport report;
  report.samples = count;
  report.values.emplace_back("loss", sum[1] / std::max(1.0, sum[0]));
  add_metrics(plan.loss.metrics, std::span(sum).subspan(kFixed), bins, report);
  return report;
}

}  // namespace muster::train
