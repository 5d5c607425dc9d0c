#include "muster/base/text.h"
#include "muster/model/args.h"
#include "muster/model/dropout.h"
#include "muster/model/layers.h"
#include "muster/model/shape.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

class Mlp : public Net {
 public:
  Mlp(const std::vector<int64_t>& widths, Function::Body activation, double dropout,
      const std::shared_ptr<LaneContext>& lane)
      : activation_(activation) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_.push_back(register_module(
          fmt::format("fc{}", i + 1),
          std::make_shared<Linear>(LinearOptions{.in = widths[i], .out = widths[i + 1]})));
      if (dropout > 0 && i + 2 < widths.size()) {
        dropouts_.push_back(register_module(fmt::format("drop{}", i + 1),
                                            std::make_shared<Dropout>(dropout, lane)));
      }
    }
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = input.flatten(1);
    for (size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = activation_((*layers_[i])(x));
      if (!dropouts_.empty()) x = (*dropouts_[i])(x);
    }
    return (*layers_.back())(x);
  }

 private:
  Function::Body activation_;
  std::vector<std::shared_ptr<Linear>> layers_;
  std::vector<std::shared_ptr<Dropout>> dropouts_;
};

Result<std::vector<int64_t>> hidden_widths(config::ArgReader& args) {
  const config::Node* node = args.get("hidden");
  if (node == nullptr) return std::vector<int64_t>{2048, 2048};
  MUSTER_TRY(auto widths, node->as_ints("hidden"));
  for (const int64_t width : widths) {
    if (width < 1) return node->error("hidden must hold widths of at least 1, not {}", width);
  }
  return widths;
}

}  // namespace

Result<std::shared_ptr<Net>> make_mlp(const config::Node& args, const data::Schema& schema,
                                      const std::shared_ptr<LaneContext>& lane) {
  config::ArgReader reader(args, "the mlp model");
  MUSTER_TRY(auto widths, hidden_widths(reader));
  MUSTER_TRY(const std::string name, reader.get_string("activation", "relu"));
  MUSTER_TRY(const double dropout, get_share(reader, "dropout", 0));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  const Function::Body activation = find_activation(name);
  if (activation == nullptr) {
    return args.find("activation")
        ->error("activation must be one of {}, not '{}'", join_words(activation_names(), "or"),
                name);
  }
  if (schema.input != data::DType::kFloat32) {
    return Error(ErrorKind::kJob,
                 "model mlp needs real numbers, but the data's samples are tokens; use gpt, or "
                 "layers that start with an embedding");
  }
  widths.insert(widths.begin(), static_cast<int64_t>(schema.input_elements()));
  widths.push_back(output_features(schema));
  return std::shared_ptr<Net>(std::make_shared<Mlp>(widths, activation, dropout, lane));
}

}  // namespace muster::model
