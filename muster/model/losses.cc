#include "muster/model/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace muster::model {
namespace {

// One row of scores per target, whether the samples are images or every place of a text is one.
torch::Tensor score_rows(const torch::Tensor& output, const torch::Tensor& target) {
  TORCH_CHECK(output.dim() == target.dim() + 1,
              "cross_entropy needs one row of scores per target: ", "the model gives ",
              output.sizes(), " for targets ", target.sizes());
  return output.reshape({-1, output.size(-1)});
}

torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  return at::cross_entropy_loss(score_rows(output, target).to(torch::kFloat32),
                                target.reshape({-1}));
}

std::pair<double, double> accuracy(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor best = score_rows(output, target).argmax(-1);
  return {static_cast<double>(best.eq(target.reshape({-1})).sum().item<int64_t>()),
          static_cast<double>(target.numel())};
}

torch::Tensor click_rows(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor rows = score_rows(output, target);
  TORCH_CHECK(rows.size(1) == 2, "loss click needs two scores per sample, but the model gives ",
              rows.size(1), "; use cross_entropy");
  return rows;
}

torch::Tensor click(const torch::Tensor& output, const torch::Tensor& target) {
  return cross_entropy(click_rows(output, target), target.reshape({-1}));
}

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Calls body(logit, clicked) for each sample: by how much the score of a click is above the other,
// and whether it was one.
template <typename Body>
void for_each_sample(const torch::Tensor& output, const torch::Tensor& target, const Body& body) {
  const torch::Tensor scores = click_rows(output, target).to(torch::kFloat64).contiguous();
  const torch::Tensor classes = target.reshape({-1}).contiguous();
  const auto* score = scores.const_data_ptr<double>();
  const auto* clicked = classes.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < classes.numel(); ++i) {
    body(score[2 * i + 1] - score[2 * i], clicked[i] != 0);
  }
}

// auc: samples that were not clicked by their logit, then those that were.
constexpr size_t kLogitBins = 2048;
constexpr double kLargestLogit = 16;

size_t logit_bin(double logit) {
  const double above = std::clamp(logit, -kLargestLogit, kLargestLogit) + kLargestLogit;
  const auto bin = static_cast<size_t>(above * (kLogitBins / (2 * kLargestLogit)));
  return std::min(bin, kLogitBins - 1);
}

void collect_auc(const torch::Tensor& output, const torch::Tensor& target, std::span<double> bins) {
  for_each_sample(output, target, [&](double logit, bool clicked) {
    if (std::isnan(logit)) {
      bins[0] = kNoNumber;
    } else {
      bins[(clicked ? kLogitBins : 0) + logit_bin(logit)] += 1;
    }
  });
}

double finish_auc(std::span<const double> bins) {
  const auto others = bins.first(kLogitBins);
  const auto clicks = bins.subspan(kLogitBins);
  double won = 0;  // pairs of a click and another, whose click has the higher score
  double others_below = 0;
  double all_clicks = 0;
  for (size_t bin = 0; bin < kLogitBins; ++bin) {
    won += clicks[bin] * (others_below + 0.5 * others[bin]);
    others_below += others[bin];
    all_clicks += clicks[bin];
  }
  const double pairs = all_clicks * others_below;
  return pairs > 0 ? won / pairs : kNoNumber;
}

// normalized_entropy: the log loss of all samples, clicks, samples. The log loss is a whole number
// of units, rounded for each sample. So that 2^23 of the worst samples stay exact, and 2^29 with a
// mean of 1, a sample's is limited.
constexpr double kLossUnit = 0x1p-24;
constexpr double kLargestLoss = 64;
constexpr size_t kEntropyBins = 3;

void collect_entropy(const torch::Tensor& output, const torch::Tensor& target,
                     std::span<double> bins) {
  for_each_sample(output, target, [&](double logit, bool clicked) {
    // log(1 + exp(wrong)), without overflow
    const double wrong = clicked ? -logit : logit;
    const double loss = std::max(wrong, 0.0) + std::log1p(std::exp(-std::abs(wrong)));
    bins[0] += std::isnan(logit) ? kNoNumber : std::round(std::min(loss, kLargestLoss) / kLossUnit);
    bins[1] += clicked ? 1 : 0;
    bins[2] += 1;
  });
}

double finish_entropy(std::span<const double> bins) {
  const double share = bins[1] / bins[2];
  if (!(share > 0 && share < 1)) return kNoNumber;
  const double entropy = -(share * std::log(share) + (1 - share) * std::log(1 - share));
  return bins[0] * kLossUnit / bins[2] / entropy;
}

// A model's [samples, 1] fits targets [samples]; nothing else is bent, and nothing is broadcast.
torch::Tensor values_like(const torch::Tensor& output, const torch::Tensor& target) {
  TORCH_CHECK(output.numel() == target.numel() && output.size(0) == target.size(0),
              "mse needs as many outputs as targets: the model gives ", output.sizes(),
              " for targets ", target.sizes());
  return output.reshape(target.sizes()).to(torch::kFloat32);
}

torch::Tensor mse(const torch::Tensor& output, const torch::Tensor& target) {
  return at::mse_loss(values_like(output, target), target);
}

std::pair<double, double> absolute_error(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor error = (values_like(output, target) - target).abs();
  return {error.sum(torch::kFloat64).item<double>(), static_cast<double>(target.numel())};
}

}  // namespace

void add_click(Registry& registry) {
  const Metric auc{
      .name = "auc", .bins = 2 * kLogitBins, .collect = collect_auc, .finish = finish_auc};
  const Metric entropy{.name = "normalized_entropy",
                       .higher_is_better = false,
                       .bins = kEntropyBins,
                       .collect = collect_entropy,
                       .finish = finish_entropy};
  registry.add_loss("click", click, {auc, entropy, {"accuracy", true, accuracy}},
                    Loss::Target::kClasses);
}

void add_cross_entropy(Registry& registry) {
  registry.add_loss("cross_entropy", cross_entropy, {{"accuracy", true, accuracy}},
                    Loss::Target::kClasses);
}

void add_mse(Registry& registry) {
  registry.add_loss("mse", mse, {{"absolute_error", false, absolute_error}}, Loss::Target::kValues);
}

}  // namespace muster::model
