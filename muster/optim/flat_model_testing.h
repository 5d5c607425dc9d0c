// A model reduced to what an optimizer sees, for tests and benchmarks: flat buffers, and a step
// that does what muster/train does, in any order of blocks and on any number of threads.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "muster/base/random.h"
#include "muster/exact/block_layout.h"
#include "muster/optim/newton_schulz.h"
#include "muster/optim/norm.h"
#include "muster/optim/optimizer.h"

namespace muster::optim {

struct FlatModel {
  FlatModel(std::vector<TensorInfo> tensors, std::span<const size_t> sizes, size_t state_count,
            uint64_t seed)
      : infos(std::move(tensors)),
        layout(sizes),
        weights(layout.elements()),
        gradient(layout.elements()),
        states(state_count, std::vector<float>(layout.elements())) {
    RandomStream random(seed, Purpose::kUser);
    for (float& w : weights) w = random.normal();
  }

  // Gradients over many magnitudes, a function of seed and step.
  void draw_gradient(uint64_t seed, int64_t step) {
    RandomStream random(seed, Purpose::kUser, 1, static_cast<uint64_t>(step));
    for (float& g : gradient) g = std::ldexp(random.normal(), -static_cast<int>(random.below(12)));
  }

  BlockView view(const exact::Block& block) {
    BlockView view{block.tensor,
                   exact::part(std::span<float>(weights), block),
                   exact::part(std::span<const float>(gradient), block),
                   {}};
    for (size_t s = 0; s < states.size(); ++s) view.states[s] = &states[s][block.begin];
    return view;
  }

  double gradient_norm(double clip_value) const {
    double sum = 0;
    for (const exact::Block& block : layout.blocks()) {
      if (infos[block.tensor].role != Role::kWeight) continue;
      sum += sum_of_squares(exact::part(std::span<const float>(gradient), block), clip_value);
    }
    return std::sqrt(sum);
  }

  // `order` is a permutation of the blocks; thread t of `threads` takes every threads-th of it.
  void step(const Optimizer& optimizer, const StepScalars& scalars, std::span<const size_t> order,
            size_t threads = 1, Isa isa = best_isa()) {
    const auto blocks = layout.blocks();
    const auto for_each_block = [&](auto&& body) {
      std::vector<std::thread> pool;
      for (size_t t = 0; t < threads; ++t) {
        pool.emplace_back([&, t] {
          for (size_t i = t; i < order.size(); i += threads) body(order[i]);
        });
      }
      for (std::thread& thread : pool) thread.join();
    };
    std::vector<Norms> tensor_norms(layout.tensors());
    if (optimizer.needs_norms()) {
      std::vector<Norms> norms(blocks.size());
      for_each_block([&](size_t b) {
        norms[b] = optimizer.measure(view(blocks[b]), infos[blocks[b].tensor], scalars, isa);
      });
      for (size_t b = 0; b < blocks.size(); ++b) tensor_norms[blocks[b].tensor] += norms[b];
    }
    const auto is_matrix = [&](size_t b) {
      return optimizer.takes_matrix(infos[blocks[b].tensor]);
    };
    std::vector<float> direction(weights.size());
    for_each_block([&](size_t b) {
      if (!is_matrix(b)) return;
      optimizer.accumulate(view(blocks[b]), scalars, exact::part(std::span(direction), blocks[b]),
                           isa);
    });
    const auto for_rows = [&](size_t rows, const auto& body) {
      std::vector<std::thread> pool;
      for (size_t t = 0; t < threads; ++t) {
        pool.emplace_back([&, t] { body(rows * t / threads, rows * (t + 1) / threads); });
      }
      for (std::thread& thread : pool) thread.join();
    };
    NewtonSchulz newton_schulz;
    for (size_t t = 0; t < infos.size(); ++t) {
      if (!optimizer.takes_matrix(infos[t])) continue;
      newton_schulz.run(std::span(direction).subspan(layout.tensor_begin(t), layout.tensor_size(t)),
                        infos[t].rows, infos[t].columns, for_rows, isa);
    }
    for_each_block([&](size_t b) {
      const size_t tensor = blocks[b].tensor;
      if (is_matrix(b)) {
        auto block = view(blocks[b]);
        block.gradient = exact::part(std::span<const float>(direction), blocks[b]);
        return optimizer.follow(block, infos[tensor], scalars, isa);
      }
      optimizer.update(view(blocks[b]), infos[tensor], scalars, tensor_norms[tensor], isa);
    });
  }
  void step(const Optimizer& optimizer, const StepScalars& scalars) {
    std::vector<size_t> order(layout.blocks().size());
    std::iota(order.begin(), order.end(), size_t{0});
    step(optimizer, scalars, order);
  }

  const std::vector<TensorInfo> infos;
  const exact::BlockLayout layout;
  std::vector<float> weights;
  std::vector<float> gradient;
  std::vector<std::vector<float>> states;
};

}  // namespace muster::optim
