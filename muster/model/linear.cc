#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "muster/model/layers.h"
#include "muster/model/share_work.h"

namespace muster::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// A piece of the gradient should stay in a core's second-level cache (1 to 2 MB today) beside what
// it is made from.
constexpr int64_t kPieceElements = 1 << 18;

// Rows in a piece: whole blocks of the sink, about kPieceElements.
int64_t rows_per_piece(int64_t columns) {
  const int64_t least = GradientSink::kGrain / std::gcd(columns, GradientSink::kGrain);
  return std::max<int64_t>(1, kPieceElements / (least * columns)) * least;
}

// gradient^T * input, a few rows at a time, into the sink. Each piece is computed by one thread, so
// that its bits do not depend on how many there are.
void stream(const torch::Tensor& gradient, const torch::Tensor& input, GradientSink& sink) {
  const int64_t rows = gradient.size(1);
  const int64_t columns = input.size(1);
  const int64_t step = rows_per_piece(columns);
  share_work((rows + step - 1) / step, [&](int64_t first, int64_t last) {
    const torch::NoGradGuard no_grad;
    auto buffer = torch::empty({std::min(step, rows), columns});
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t row = piece * step;
      const int64_t count = std::min(step, rows - row);
      auto part = buffer.narrow(0, 0, count);
      at::mm_out(part, gradient.narrow(1, row, count).t(), input);
      sink.add(static_cast<size_t>(row * columns),
               {part.const_data_ptr<float>(), static_cast<size_t>(count * columns)});
    }
  });
}

}  // namespace

// What at::linear computes; its backward streams the weight's gradient.
class StreamedLinear : public torch::autograd::Function<StreamedLinear> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, Linear* layer) {
    context->save_for_backward({input, weight});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    return at::linear(input, weight, bias);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    // NOLINTNEXTLINE(performance-no-int-to-ptr): saved_data has room for numbers, not for pointers
    const auto& layer = *reinterpret_cast<Linear*>(context->saved_data["layer"].toInt());
    const auto gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    const auto input = saved[0].reshape({-1, saved[0].size(-1)});
    tensor_list result(4);
    if (context->needs_input_grad(0)) result[0] = gradient.mm(saved[1]).view(saved[0].sizes());
    if (layer.sink_->only_use()) {
      stream(gradient, input, *layer.sink_);
    } else {
      result[1] = gradient.t().mm(input);
    }
    if (layer.bias_.defined() && context->needs_input_grad(2)) result[2] = gradient.sum(0);
    return result;
  }
};

Linear::Linear(const LinearOptions& options)
    : options_(options),
      weight_(register_parameter("weight", torch::empty({options.out, options.in}))) {
  if (options.bias) bias_ = register_parameter("bias", torch::empty({options.out}));
}

void Linear::stream_to(GradientSink* sink) {
  // Less than that stays in the cache until the sum reads it.
  sink_ = weight_.numel() > kPieceElements ? sink : nullptr;
}

torch::Tensor Linear::forward(const torch::Tensor& input) {
  const bool stream = sink_ != nullptr && torch::GradMode::is_enabled() &&
                      weight_.requires_grad() && !at::autocast::is_autocast_enabled(at::kCPU);
  if (!stream) return at::linear(input, weight_, bias_);
  const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
  return StreamedLinear::apply(input, weight_, bias, this);
}

}  // namespace muster::model
