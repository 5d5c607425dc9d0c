#include "muster/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/optim/flat_model_testing.h"
#include "muster/optim/muon_testing.h"
#include "muster/optim/norm.h"

namespace muster::optim {
namespace {

using config::OptimizerOptions;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  OptimizerOptions options;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }  // NOLINT: GoogleTest's name

// A case of every branch of every kind.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const std::string& kind,
                       const std::function<void(OptimizerOptions&)>& change) {
    OptimizerOptions options;
    options.kind = kind;
    options.lr = 0.02;
    change(options);
    cases.push_back({name, options});
  };
  add("sgd", "sgd", [](auto&) {});
  add("sgd_decay_clip", "sgd", [](auto& o) { o.weight_decay = 0.01, o.clip.value = 0.3; });
  add("momentum", "sgd", [](auto& o) { o.momentum = 0.9, o.dampening = 0.2; });
  add("nesterov", "sgd",
      [](auto& o) { o.momentum = 0.9, o.nesterov = true, o.weight_decay = 0.1; });
  add("adam", "adam", [](auto& o) { o.weight_decay = 0.1; });
  add("adamw", "adamw", [](auto& o) { o.weight_decay = 0.1, o.decay_on = "matrices"; });
  add("adagrad", "adagrad", [](auto& o) { o.weight_decay = 0.1; });
  // With a tiny eps, 0.2 is the first step of an element whose gradient all but cancels against its
  // decay, in a direction that rounding decides: no two formulas would agree.
  add("rmsprop", "rmsprop", [](auto& o) { o.weight_decay = 0.1, o.eps = 1e-3; });
  add("rmsprop_momentum", "rmsprop", [](auto& o) { o.momentum = 0.9, o.eps = 1e-3; });
  add("lars", "lars", [](auto& o) { o.momentum = 0.9, o.weight_decay = 0.01, o.clip.value = 1; });
  add("lars_matrices", "lars", [](auto& o) { o.weight_decay = 0.01, o.decay_on = "matrices"; });
  add("lamb", "lamb", [](auto& o) { o.weight_decay = 0.01; });
  add("muon", "muon", [](auto& o) { o.momentum = 0.95, o.weight_decay = 0.1; });
  add("muon_nesterov", "muon", [](auto& o) {
    o.momentum = 0.9, o.nesterov = true, o.clip.value = 0.3, o.adamw_on = {"lin*"};
  });
  add("lamb_matrices", "lamb", [](auto& o) { o.weight_decay = 0.01, o.decay_on = "matrices"; });
  return cases;
}

FlatModel make_model(const Optimizer& optimizer) {
  const std::vector<size_t> sizes = {2 * exact::kBlockSize + 78, 13, 1, 5000, 64, 64, 4900};
  const auto matrix = [](const char* name, int dims, size_t rows, size_t columns) {
    return TensorInfo{.name = name, .dims = dims, .rows = rows, .columns = columns};
  };
  auto embedding = matrix("embedding", 2, 70, 70);
  embedding.lookup = true;
  return FlatModel({matrix("conv", 4, 10, 827),
                    {"bias", 1},
                    {"scale", 0},
                    matrix("linear", 2, 100, 50),
                    {"frozen", 2, Role::kFrozen},
                    {"running_mean", 1, Role::kStatistic, 0.25},
                    embedding},
                   sizes, optimizer.state_names().size(), 11);
}

std::unique_ptr<Optimizer> make(const OptimizerOptions& options) {
  auto made = make_optimizer(options);
  EXPECT_TRUE(made.ok()) << made.error().message();
  return std::move(made).value();
}

// The formulas once more: a whole tensor at a time, in double, as plainly as they can be written.
struct PlainTensor {
  std::vector<double> w, a, b;
};

void plain_muon_step(const OptimizerOptions& o, bool decays, const TensorInfo& info,
                     const std::vector<double>& g, PlainTensor& p) {
  std::vector<double> d(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    p.a[i] = o.momentum * p.a[i] + (1 - o.momentum) * g[i];
    d[i] = o.nesterov ? (1 - o.momentum) * g[i] + o.momentum * p.a[i] : p.a[i];
  }
  d = orthogonalized(d, info.columns);
  const double rate = o.lr * 0.2 * std::sqrt(std::max(info.rows, info.columns));
  for (size_t i = 0; i < g.size(); ++i) {
    p.w[i] = (1 - o.lr * (decays ? o.weight_decay : 0)) * p.w[i] - rate * d[i];
  }
}

void plain_step(const OptimizerOptions& o, bool decays, const TensorInfo& info, int64_t t,
                const std::vector<double>& g0, PlainTensor& p) {
  const bool named = !o.adamw_on.empty() && info.name == "linear";
  if (o.kind == "muon" && info.dims >= 2 && info.name != "embedding" && !named) {
    return plain_muon_step(o, decays, info, g0, p);
  }
  const size_t n = p.w.size();
  const double decay = decays ? o.weight_decay : 0;
  const auto norm = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return std::sqrt(sum);
  };
  const double c1 = 1 - std::pow(o.beta1, t + 1), c2 = 1 - std::pow(o.beta2, t + 1);
  std::vector<double> g = g0, u(n);
  if (o.kind == "sgd" || o.kind == "adam" || o.kind == "adagrad" || o.kind == "rmsprop") {
    for (size_t i = 0; i < n; ++i) g[i] += decay * p.w[i];
  }
  for (size_t i = 0; i < n; ++i) {
    double& a = p.a[i];
    double& b = p.b[i];
    if (o.kind == "sgd") {
      a = t == 0 ? g[i] : o.momentum * a + (1 - o.dampening) * g[i];
      u[i] = o.lr * (o.momentum == 0 ? g[i] : o.nesterov ? g[i] + o.momentum * a : a);
    } else if (o.kind == "adagrad") {
      a += g[i] * g[i];
      u[i] = o.lr * g[i] / (std::sqrt(a) + o.eps);
    } else if (o.kind == "rmsprop") {
      a = o.alpha * a + (1 - o.alpha) * g[i] * g[i];
      b = o.momentum * b + g[i] / (std::sqrt(a) + o.eps);
      u[i] = o.lr * b;
    } else if (o.kind != "lars") {  // adam, adamw, lamb, and muon for what is no matrix
      a = o.beta1 * a + (1 - o.beta1) * g[i];
      b = o.beta2 * b + (1 - o.beta2) * g[i] * g[i];
      u[i] = a / c1 / (std::sqrt(b / c2) + o.eps);
      if (o.kind == "lamb") u[i] += decay * p.w[i];
      if (o.kind == "adam") u[i] *= o.lr;
      if (o.kind == "adamw" || o.kind == "muon") u[i] = o.lr * u[i] + o.lr * decay * p.w[i];
    }
  }
  if (o.kind == "lamb") {
    const double ratio = decays && norm(p.w) > 0 && norm(u) > 0 ? norm(p.w) / norm(u) : 1;
    for (double& x : u) x *= o.lr * ratio;
  } else if (o.kind == "lars") {
    const double w = norm(p.w);
    const double rate = decays && w > 0 ? o.trust * w / (norm(g) + decay * w) : 1;
    for (size_t i = 0; i < n; ++i) {
      p.a[i] = o.momentum * p.a[i] + o.lr * rate * (g[i] + decay * p.w[i]);
      u[i] = p.a[i];
    }
  }
  for (size_t i = 0; i < n; ++i) p.w[i] -= u[i];
}

class EveryKind : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Optimizer, EveryKind, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(EveryKind, FollowsTheFormula) {
  const OptimizerOptions& o = GetParam().options;
  const auto optimizer = make(o);
  FlatModel model = make_model(*optimizer);
  std::vector<PlainTensor> plain(model.layout.tensors());
  for (size_t t = 0; t < plain.size(); ++t) {
    const auto begin = model.weights.begin() + static_cast<ptrdiff_t>(model.layout.tensor_begin(t));
    plain[t].w.assign(begin, begin + static_cast<ptrdiff_t>(model.layout.tensor_size(t)));
    plain[t].a.assign(plain[t].w.size(), 0);
    plain[t].b.assign(plain[t].w.size(), 0);
  }
  for (int64_t step = 0; step < 20; ++step) {
    model.draw_gradient(5, step);
    const double factor = clip_factor(model.gradient_norm(o.clip.value), 5);
    ASSERT_LT(factor, 1);
    model.step(*optimizer, {step, o.lr, factor});
    for (size_t t = 0; t < plain.size(); ++t) {
      const TensorInfo& info = model.infos[t];
      std::vector<double>& w = plain[t].w;
      std::vector<double> g(w.size());
      for (size_t i = 0; i < g.size(); ++i) {
        g[i] = static_cast<double>(model.gradient[model.layout.tensor_begin(t) + i]);
        if (info.role == Role::kStatistic) w[i] = 0.75 * w[i] + 0.25 * g[i];
        if (o.clip.value > 0) g[i] = std::clamp(g[i], -o.clip.value, o.clip.value);
        g[i] *= factor;
      }
      if (info.role == Role::kWeight) {
        plain_step(o, o.decay_on == "all" || info.dims >= 2, info, step, g, plain[t]);
      }
      for (size_t i = 0; i < g.size(); ++i) {
        const double ours = static_cast<double>(model.weights[model.layout.tensor_begin(t) + i]);
        // Rounding of a weight at each step, and of an update that may be large against it.
        // Muon's iteration makes small singular values, and their rounding, 500 times larger.
        const double unit = o.kind == "muon" ? 5e-5 : 2e-6;
        ASSERT_NEAR(ours, w[i], unit * (1 + std::abs(w[i])))
            << info.name << "[" << i << "] after step " << step;
      }
    }
  }
}

// The promise of optimizer.h: order, threads and instruction set do not matter.
TEST_P(EveryKind, SameBitsInAnyOrderOnAnyThreadsAndInstructionSet) {
  const OptimizerOptions& o = GetParam().options;
  const auto optimizer = make(o);
  FlatModel expected = make_model(*optimizer);
  for (int64_t step = 0; step < 5; ++step) {
    expected.draw_gradient(6, step);
    expected.step(*optimizer, {step, o.lr, 0.7});
  }
  RandomStream random(7, Purpose::kUser);
  for (const Isa isa : usable_isas()) {
    for (const size_t threads : {1, 2, 3, 8}) {
      FlatModel model = make_model(*optimizer);
      std::vector<size_t> order(model.layout.blocks().size());
      std::iota(order.begin(), order.end(), size_t{0});
      for (int64_t step = 0; step < 5; ++step) {
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
        model.draw_gradient(6, step);
        model.step(*optimizer, {step, o.lr, 0.7}, order, threads, isa);
      }
      ASSERT_EQ(model.weights, expected.weights) << isa_name(isa) << " " << threads << " threads";
      ASSERT_EQ(model.states, expected.states) << isa_name(isa) << " " << threads << " threads";
    }
  }
}

TEST_P(EveryKind, LeavesPaddingAndFrozenTensorsAlone) {
  const auto optimizer = make(GetParam().options);
  FlatModel model = make_model(*optimizer);
  const std::vector<float> before = model.weights;
  model.draw_gradient(8, 0);
  model.step(*optimizer, {0, 0.1, 1});
  std::vector<bool> may_change(before.size(), false);
  for (const exact::Block& block : model.layout.blocks()) {
    if (model.infos[block.tensor].role == Role::kFrozen) continue;
    std::fill_n(may_change.begin() + static_cast<ptrdiff_t>(block.begin), block.size, true);
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (may_change[i]) continue;
    EXPECT_EQ(model.weights[i], before[i]) << i;
    for (const auto& state : model.states) EXPECT_EQ(state[i], 0) << i;
  }
}

TEST_P(EveryKind, MeasureChangesNothing) {
  const auto optimizer = make(GetParam().options);
  FlatModel model = make_model(*optimizer);
  model.draw_gradient(8, 0);
  const auto weights = model.weights;
  const auto states = model.states;
  for (const exact::Block& block : model.layout.blocks()) {
    const Norms norms = optimizer->measure(model.view(block), model.infos[block.tensor], {0, 1, 1});
    const bool measured =
        optimizer->needs_norms() && model.infos[block.tensor].role == Role::kWeight;
    EXPECT_EQ(norms.weights > 0, measured);
    EXPECT_EQ(norms.update > 0, measured);
  }
  EXPECT_EQ(model.weights, weights);
  EXPECT_EQ(model.states, states);
}

TEST(NewtonSchulz, SingularValuesBecomeAboutOne) {
  // With the identity times some scales, singular values are the diagonal.
  constexpr size_t kRows = 37, kColumns = 53;
  std::vector<float> matrix(kRows * kColumns);
  for (size_t i = 0; i < kRows; ++i) {
    matrix[i * kColumns + i] = 1.0f / static_cast<float>(1 + i);
  }
  const auto whole = [](size_t rows, const auto& body) { body(0, rows); };
  NewtonSchulz newton_schulz;
  newton_schulz.run(matrix, kRows, kColumns, whole);
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kColumns; ++j) {
      const float v = matrix[i * kColumns + j];
      if (i == j) {
        EXPECT_GT(v, 0.6f) << i;
        EXPECT_LT(v, 1.3f) << i;
      } else {
        EXPECT_EQ(v, 0) << i << ", " << j;
      }
    }
  }
  // What an infinity leaves behind does not reach the next matrix.
  std::vector<float> bad(100, std::numeric_limits<float>::infinity());
  newton_schulz.run(bad, 10, 10, whole);
  std::vector<float> zeros(100);
  newton_schulz.run(zeros, 10, 10, whole);
  EXPECT_EQ(zeros, std::vector<float>(100));
}

// What torch.optim.Muon of PyTorch 2.15 gives, whose Newton-Schulz steps have 8 bits.
TEST(Optimizer, MuonIsNearTorchs) {
  OptimizerOptions options;
  options.kind = "muon";
  options.momentum = 0.9;
  options.nesterov = true;
  options.weight_decay = 0.1;
  const auto optimizer = make(options);
  const std::vector<size_t> sizes = {6};
  FlatModel model({{.name = "w", .dims = 2, .rows = 2, .columns = 3}}, sizes, 2, 1);
  const auto set = [](std::vector<float>& flat, const std::vector<float>& values) {
    std::ranges::copy(values, flat.begin());
  };
  set(model.weights, {0.5f, -1.0f, 0.25f, 2.0f, 0.75f, -0.5f});
  const std::vector<std::vector<float>> gradients = {{0.3f, -0.2f, 0.1f, 0.05f, 0.4f, -0.6f},
                                                     {-0.1f, 0.7f, 0.2f, 0.3f, -0.2f, 0.1f},
                                                     {0.6f, 0.1f, -0.4f, -0.5f, 0.2f, 0.3f}};
  for (size_t step = 0; step < gradients.size(); ++step) {
    set(model.gradient, gradients[step]);
    model.step(*optimizer, {static_cast<int64_t>(step), 0.1, 1});
  }
  const std::vector<float> torch = {0.4309f, -0.9991f, 0.2456f, 1.9153f, 0.6810f, -0.4539f};
  for (size_t i = 0; i < torch.size(); ++i) EXPECT_NEAR(model.weights[i], torch[i], 2e-3f) << i;
}

// A tensor of zeros has no direction to scale by; it must still be able to leave zero.
TEST(Optimizer, LayerwiseRatesStartFromZeroWeights) {
  for (const std::string kind : {"lars", "lamb"}) {
    OptimizerOptions options;
    options.kind = kind;
    const auto optimizer = make(options);
    FlatModel model = make_model(*optimizer);
    std::fill(model.weights.begin(), model.weights.end(), 0.0f);
    model.draw_gradient(9, 0);
    model.step(*optimizer, {0, 0.1, 1});
    EXPECT_NE(model.weights[0], 0) << kind;
    for (const float w : model.weights) ASSERT_TRUE(std::isfinite(w)) << kind;
    // And gradients of zero, of weights that are not.
    FlatModel still = make_model(*optimizer);
    still.step(*optimizer, {0, 0.1, 1});
    for (const float w : still.weights) ASSERT_TRUE(std::isfinite(w)) << kind;
  }
}

TEST(Optimizer, StateIsNamedAsTorchNamesIt) {
  const auto names = [](const std::string& kind, double momentum) {
    OptimizerOptions options;
    options.kind = kind;
    options.momentum = momentum;
    return make(options)->state_names();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("sgd", 0), Names{});
  EXPECT_EQ(names("sgd", 0.9), Names{"momentum_buffer"});
  EXPECT_EQ(names("adam", 0), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names("adamw", 0), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names("adagrad", 0), Names{"sum"});
  EXPECT_EQ(names("rmsprop", 0), Names{"square_avg"});
  EXPECT_EQ(names("rmsprop", 0.9), (Names{"square_avg", "momentum_buffer"}));
  EXPECT_EQ(names("lars", 0.9), Names{"momentum_buffer"});
  EXPECT_EQ(names("lamb", 0), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names("muon", 0.95), (Names{"momentum_buffer", "exp_avg_sq"}));
}

TEST(Optimizer, RefusesWhatHasNoMeaning) {
  const auto refusal = [](const std::function<void(OptimizerOptions&)>& change) {
    OptimizerOptions options;
    change(options);
    const auto made = make_optimizer(options);
    if (made.ok()) return std::string("accepted");
    EXPECT_EQ(made.error().kind(), ErrorKind::kJob);
    return made.error().message();
  };
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_THAT(refusal([](auto& o) { o.kind = "adm"; }), HasSubstr("did you mean 'adam'"));
  EXPECT_THAT(refusal([](auto& o) { o.lr = -1; }), HasSubstr("optimizer.lr is -1"));
  EXPECT_THAT(refusal([](auto& o) { o.lr = std::nan(""); }), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refusal([](auto& o) { o.momentum = 1; }), HasSubstr("optimizer.momentum"));
  EXPECT_THAT(refusal([](auto& o) { o.beta1 = 1; }), HasSubstr("optimizer.beta1"));
  EXPECT_THAT(refusal([](auto& o) { o.clip.norm = -1; }), HasSubstr("optimizer.clip.norm"));
  EXPECT_THAT(refusal([](auto& o) { o.decay_on = "some"; }), HasSubstr("all or matrices"));
  EXPECT_THAT(refusal([](auto& o) { o.nesterov = true, o.momentum = 0; }),
              HasSubstr("optimizer.nesterov"));
  EXPECT_THAT(refusal([](auto& o) { o.kind = "muon"; }), HasSubstr("0.95 is usual"));
}

TEST(Optimizer, KindsAreAllThere) {
  EXPECT_THAT(optimizer_kinds(), ::testing::ElementsAre("adagrad", "adam", "adamw", "lamb", "lars",
                                                        "muon", "rmsprop", "sgd"));
  for (const std::string& kind : optimizer_kinds()) {
    OptimizerOptions options;
    options.kind = kind;
    options.momentum = 0.9;
    const auto states = make(options)->state_names();
    EXPECT_LE(states.size(), 4u);
    // Each kind with squares has one such state.
    const bool squares = kind != "sgd" && kind != "lars";
    EXPECT_EQ(std::ranges::count_if(states, is_square), squares ? 1 : 0) << kind;
  }
}

}  // namespace
}  // namespace muster::optim
