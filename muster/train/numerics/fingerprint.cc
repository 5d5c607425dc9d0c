#include "muster/train/numerics/fingerprint.h"

#include <malloc.h>

#include <cstdlib>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gloo/allreduce.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "muster/base/float_mode.h"
#include "muster/base/isa.h"
#include "muster/base/random.h"
#include "muster/base/symbol_origin.h"

namespace muster::train {
namespace {

torch::Tensor numbers(const std::vector<int64_t>& shape, uint64_t which) {
  auto tensor = torch::empty(shape);
  RandomStream random(0, Purpose::kUser, which);
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = random.uniform() * 2.0F - 1.0F;
  return tensor;
}

Hash128 hash_of(const std::vector<torch::Tensor>& tensors) {
  Hasher hasher;
  for (const auto& tensor : tensors) {
    const auto flat = tensor.detach().contiguous();
    hasher.add(flat.const_data_ptr(), flat.nbytes());
  }
  return hasher.finish();
}

Hash128 with_gradients(const torch::Tensor& output, const std::vector<torch::Tensor>& leaves) {
  output.square().sum().backward();
  std::vector<torch::Tensor> results{output};
  for (const auto& leaf : leaves) results.push_back(leaf.grad());
  return hash_of(results);
}

}  // namespace

Hash128 Fingerprint::combined() const {
  Hasher hasher;
  for (const auto& [name, hash] : kernels) {
    hasher.add(name.data(), name.size());
    hasher.add(&hash, sizeof(hash));
  }
  return hasher.finish();
}

Fingerprint take_fingerprint() {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  Fingerprint print;
  {
    // Odd sizes, so that the kernels' remainders are in it too.
    auto a = numbers({67, 131}, 1).requires_grad_();
    auto b = numbers({131, 93}, 2).requires_grad_();
    print.kernels.emplace_back("matmul", with_gradients(torch::mm(a, b), {a, b}));
  }
  {
    auto x = numbers({3, 5, 17, 17}, 3).requires_grad_();
    auto w = numbers({7, 5, 3, 3}, 4).requires_grad_();
    print.kernels.emplace_back("conv2d", with_gradients(torch::conv2d(x, w), {x, w}));
  }
  {
    auto x = numbers({19, 129}, 5).requires_grad_();
    print.kernels.emplace_back("softmax", with_gradients(torch::log_softmax(x, 1), {x}));
  }
  {
    auto x = numbers({19, 129}, 6).requires_grad_();
    auto w = numbers({129}, 7).requires_grad_();
    print.kernels.emplace_back("layer_norm",
                               with_gradients(torch::layer_norm(x, {129}, w), {x, w}));
  }
  {
    auto x = numbers({33, 65}, 8).requires_grad_();
    print.kernels.emplace_back("gelu", with_gradients(torch::gelu(x), {x}));
  }
  {
    auto q = numbers({2, 2, 33, 16}, 9).requires_grad_();
    const auto y = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
    print.kernels.emplace_back("attention", with_gradients(y, {q}));
  }
  {
    const auto a = numbers({67, 131}, 1).to(torch::kBFloat16);
    const auto b = numbers({131, 93}, 2).to(torch::kBFloat16);
    print.kernels.emplace_back("matmul_bf16", hash_of({torch::mm(a, b)}));
  }
  {
    // Half of the products are subnormal.
    const auto a = numbers({16, 32}, 10) * 0x1p-63F;
    const auto b = numbers({32, 16}, 11) * 0x1p-63F;
    print.kernels.emplace_back("subnormals", hash_of({torch::mm(a, b), a * 0x1p-62F}));
  }
  at::set_num_threads(threads);
  return print;
}

void prepare_process() {
  // NOLINTBEGIN(concurrency-mt-unsafe): called first, when there is one thread
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("MKL_NUM_THREADS", "1", 0);
  // threads_per_lane means that many, not fewer where the library finds the machine too small.
  setenv("MKL_DYNAMIC", "FALSE", 0);
  setenv("OMP_DYNAMIC", "FALSE", 0);
  // Without this MKL may take another path for memory that happens to be aligned differently.
  setenv("MKL_CBWR", best_isa() == Isa::kAvx512 ? "AVX512,STRICT" : "AVX2,STRICT", 0);
  // Gradients and activations come and go every step. glibc would give large pieces back to the
  // kernel and page-fault them in again; keep them.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
  flush_subnormals();
}

void use_threads_in_operations(int threads) {
  at::set_num_threads(threads);
  if (threads < 2) return;  // one thread computes the same bits either way
  // All threads of a team come here before they compute.
  static std::once_flag once;
  std::call_once(once, [] {
    auto& context = at::globalContext();
    // An operator that has no such algorithm warns and runs: it may be reproducible on the CPU.
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    // It costs time, and jobs with one thread do without it.
    context.setDeterministicFillUninitializedMemory(false);
  });
}

Result<std::string> check_gloo() {
  const void* address =
      function_address(static_cast<void (*)(const gloo::AllreduceOptions&)>(&gloo::allreduce));
  MUSTER_RETURN_IF_ERROR(check_symbol_origin("gloo::allreduce", address, "libgloo"));
  return symbol_origin(address);
}

std::string kernel_capability() { return at::get_cpu_capability(); }

}  // namespace muster::train
