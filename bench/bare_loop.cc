// The yardstick: the training loop that anybody would write with libtorch, without lanes, flat
// buffers or any of Muster. Plain modules, torch::optim, op-parallel threads.
//
// Protocol, shared with bare_loop.py and muster_loop.cc so that bench/step_time.py can alternate
// between them: reads "N\n" on standard input, runs N steps, prints one JSON line with the seconds
// of each; ends with its input.
//
//   bare_loop MODEL BATCH THREADS        MODEL: lenet, mlp, gpt
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Net : nn::Module {
  virtual Tensor forward(Tensor x) = 0;
};

struct Lenet : Net {
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
  Lenet() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 20, 5)));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(20, 50, 5)));
    fc1 = register_module("fc1", nn::Linear(800, 500));
    fc2 = register_module("fc2", nn::Linear(500, 10));
  }
  Tensor forward(Tensor x) override {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
};

struct Mlp : Net {
  nn::Sequential layers;
  Mlp() {
    layers = register_module(
        "layers", nn::Sequential(nn::Flatten(), nn::Linear(784, 2048), nn::ReLU(),
                                 nn::Linear(2048, 2048), nn::ReLU(), nn::Linear(2048, 10)));
  }
  Tensor forward(Tensor x) override { return layers->forward(x); }
};

struct BlockImpl : nn::Module {
  int64_t heads;
  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  nn::Linear c_attn{nullptr}, attn_proj{nullptr}, c_fc{nullptr}, mlp_proj{nullptr};
  BlockImpl(int64_t width, int64_t heads) : heads(heads) {
    ln_1 = register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({width})));
    ln_2 = register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({width})));
    c_attn = register_module("c_attn", nn::Linear(nn::LinearOptions(width, 3 * width).bias(false)));
    attn_proj =
        register_module("attn_proj", nn::Linear(nn::LinearOptions(width, width).bias(false)));
    c_fc = register_module("c_fc", nn::Linear(nn::LinearOptions(width, 4 * width).bias(false)));
    mlp_proj =
        register_module("mlp_proj", nn::Linear(nn::LinearOptions(4 * width, width).bias(false)));
  }
  Tensor forward(Tensor x) {
    const auto b = x.size(0), t = x.size(1), c = x.size(2);
    auto qkv = c_attn(ln_1(x)).split(c, 2);
    for (auto& part : qkv) part = part.view({b, t, heads, c / heads}).transpose(1, 2);
    auto y = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
    x = x + attn_proj(y.transpose(1, 2).contiguous().view({b, t, c}));
    return x + mlp_proj(torch::gelu(c_fc(ln_2(x))));
  }
};
TORCH_MODULE(Block);

struct Gpt : Net {
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::ModuleList blocks;
  nn::LayerNorm ln_f{nullptr};
  Gpt() {
    wte = register_module("wte", nn::Embedding(65, 128));
    wpe = register_module("wpe", nn::Embedding(64, 128));
    blocks = register_module("h", nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(Block(128, 4));
    ln_f = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({128})));
  }
  Tensor forward(Tensor x) override {
    auto h = wte(x) + wpe(torch::arange(x.size(1)));
    for (auto& block : *blocks) h = block->as<BlockImpl>()->forward(h);
    return torch::matmul(ln_f(h), wte->weight.t());
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bare_loop lenet|mlp|gpt BATCH THREADS\n");
    return 2;
  }
  const std::string kind = argv[1];
  const int64_t batch = std::stoll(argv[2]);
  at::set_num_threads(std::stoi(argv[3]));
  torch::manual_seed(1);

  std::shared_ptr<Net> net;
  Tensor inputs, targets;  // a data set in memory: 1,024 samples
  if (kind == "gpt") {
    net = std::make_shared<Gpt>();
    inputs = torch::randint(65, {1024, 64}, torch::kInt64);
    targets = torch::randint(65, {1024, 64}, torch::kInt64);
  } else {
    if (kind == "lenet")
      net = std::make_shared<Lenet>();
    else
      net = std::make_shared<Mlp>();
    inputs = torch::randn({1024, 1, 28, 28});
    targets = torch::randint(10, {1024}, torch::kInt64);
  }
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (kind == "gpt") {
    optimizer = std::make_unique<torch::optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(1e-3).betas({0.9, 0.99}).weight_decay(0.1));
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                    torch::optim::SGDOptions(0.01).momentum(0.9));
  }

  int64_t step = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string out = "[";
    for (int n = std::stoi(line); n > 0; --n, ++step) {
      const auto start = std::chrono::steady_clock::now();
      const auto at = (step * batch) % (1024 - batch + 1);
      const auto x = inputs.narrow(0, at, batch);
      const auto y = targets.narrow(0, at, batch);
      optimizer->zero_grad();
      auto output = net->forward(x);
      if (kind == "gpt") output = output.view({-1, 65});
      auto loss = F::cross_entropy(output, y.reshape({-1}));
      loss.backward();
      if (kind == "gpt") nn::utils::clip_grad_norm_(net->parameters(), 1.0);
      optimizer->step();
      (void)loss.item<float>();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      out += std::to_string(took.count()) + (n > 1 ? ", " : "");
    }
    std::printf("%s]\n", out.c_str());
    std::fflush(stdout);
  }
  return 0;
}
