// Samples per second through the loader, MNIST-like: 20,000 images of 28 x 28 in idx form, batch
// 128, 8 lanes taken one after the other by one thread. Every batch is checked: the targets must be
// the labels of the samples it names.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/data/formats.h"
#include "muster/data/loader.h"

namespace muster::data {
namespace {

constexpr uint32_t kImages = 20000;

std::string header(std::initializer_list<uint32_t> dimensions) {
  std::string file = {'\0', '\0', '\x08', static_cast<char>(dimensions.size())};
  for (const uint32_t d : dimensions) {
    for (const int shift : {24, 16, 8, 0}) file.push_back(static_cast<char>(d >> shift & 0xff));
  }
  return file;
}

std::unique_ptr<Dataset> make_dataset() {
  std::string images = header({kImages, 28, 28});
  std::string labels = header({kImages});
  for (uint32_t i = 0; i < kImages; ++i) {
    for (uint32_t j = 0; j < 784; ++j) images.push_back(static_cast<char>(i * 31 + j * 17));
    labels.push_back(static_cast<char>(i % 10));
  }
  auto image_reader = ByteReader::from_memory(std::as_bytes(std::span(images)), "images");
  auto label_reader = ByteReader::from_memory(std::as_bytes(std::span(labels)), "labels");
  return read_idx(*std::move(image_reader), *std::move(label_reader), {}).value();
}

// Arguments: prefetch threads; whether images are augmented.
void BM_Loader(benchmark::State& state) {
  const auto dataset = make_dataset();
  LoaderPlan plan;
  plan.batches = {.batch = 128, .lanes = 8};
  plan.threads = static_cast<int>(state.range(0));
  if (state.range(1) != 0) {
    plan.augment = Augmenter::make({.shift = 2, .flip = true}, dataset->schema()).value();
  }
  Loader loader(*dataset, plan, {0, 1, 2, 3, 4, 5, 6, 7}, 0);
  uint64_t step = 0;
  int64_t samples = 0;
  for ([[maybe_unused]] const auto _ : state) {
    for (int lane = 0; lane < 8; ++lane) {
      const BorrowedBatch borrowed = *loader.take(step, lane);
      benchmark::DoNotOptimize(borrowed->inputs.data());
      for (uint64_t i = 0; i < borrowed->count; ++i) {
        int64_t target = 0;
        std::memcpy(&target, borrowed->targets.data() + 8 * i, sizeof(target));
        if (target != static_cast<int64_t>(borrowed->samples[i] % 10)) {
          state.SkipWithError("a batch does not hold the samples that it names");
          return;
        }
      }
      samples += static_cast<int64_t>(borrowed->count);
    }
    ++step;
  }
  const auto counters = loader.counters();
  const auto total = static_cast<double>(counters.ready + counters.waited + counters.by_hand);
  state.SetItemsProcessed(samples);
  state.counters["ready"] = static_cast<double>(counters.ready) / total;
  state.counters["by_hand"] = static_cast<double>(counters.by_hand) / total;
  state.counters["buffers"] = static_cast<double>(counters.buffers);
}
BENCHMARK(BM_Loader)
    ->ArgNames({"threads", "augment"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->UseRealTime();

}  // namespace
}  // namespace muster::data
