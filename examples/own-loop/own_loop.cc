// LeNet on MNIST in a training loop of our own: the whole program. See README.md.
#include "muster/data/dataset.h"
#include "muster/own_loop/loop.h"

namespace {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 20, 5));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(20, 50, 5));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(800, 500));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(500, 10));
};
TORCH_MODULE(Net);

// The files that the job names, as tensors. Any other way to get them will do.
struct Data {
  explicit Data(muster::config::SourceOptions source) {
    source.format = "idx";
    const auto set = muster::data::Registry::builtin().open(source).value();
    const auto size = static_cast<int64_t>(set->size());
    images = torch::empty({size, 1, 28, 28});
    labels = torch::empty({size}, torch::kInt64);
    for (int64_t i = 0; i < size; ++i) {
      set->read(static_cast<uint64_t>(i),
                reinterpret_cast<std::byte*>(images.mutable_data_ptr<float>() + i * 28 * 28),
                reinterpret_cast<std::byte*>(labels.mutable_data_ptr<int64_t>() + i));
    }
  }
  torch::Tensor images, labels;
};

}  // namespace

int main(int argc, char** argv) {
  muster::Loop loop(argc, argv);  // first of all
  const Data data(loop.job().data.train);
  Net net;
  loop.adopt(*net, {data.images, data.labels});
  while (loop.step()) {
    for (muster::Lane& lane : loop.lanes()) {
      const auto output = net->forward(lane.take(data.images));
      lane.backward(torch::cross_entropy_loss(output, lane.take(data.labels)));
    }
    loop.commit();
  }
  return loop.finish();
}
