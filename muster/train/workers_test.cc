// The promise with several workers: whatever their number, the lanes they have and the way they
// talk, the same job gives the same bits.
#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muster/comm/gloo_group.h"
#include "muster/comm/local_group.h"
#include "muster/sync/recipe.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

const char* const kLenet = R"(
model: { zoo: lenet }
data:
  train: { format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: mnist/train-labels-idx1-ubyte.gz }
  test: { format: idx, images: mnist/t10k-images-idx3-ubyte.gz, labels: mnist/t10k-labels-idx1-ubyte.gz, limit: 100 }
batch: 37
lanes: 8
steps: 4
eval: { batch: 7 }
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9 }
)";

const char* const kResnet = R"(
model: { zoo: resnet, args: { size: 8 } }
data:
  train:
    format: idx
    images: fashion-mnist/train-images-idx3-ubyte.gz
    labels: fashion-mnist/train-labels-idx1-ubyte.gz
  augment: { flip: true, shift: 2 }
batch: 16
lanes: 8
steps: 3
optimizer: { kind: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.0005 }
)";

const char* const kGpt = R"(
model: { zoo: gpt, args: { layers: 2, heads: 4, width: 64, dropout: 0.2 } }
data:
  train: { format: text, path: tinyshakespeare/input.txt, context: 32 }
batch: 16
lanes: 8
steps: 4
optimizer: { kind: adamw, lr: 0.001, weight_decay: 0.1, clip: { norm: 1.0 } }
)";

enum class Backend { kLocal, kGloo };

// Lanes dealt out unequally: worker w of n gets those whose number has the remainder of a little
// permutation, so that neither their count nor their order is the same.
std::vector<int> lanes_of(int worker, int workers, int lanes) {
  std::vector<int> own;
  for (int lane = 0; lane < lanes; ++lane) {
    if ((lane * 5 + 3) % lanes % workers == worker) own.push_back(lane);
  }
  return own;
}

// What a worker has in the end.
std::string train_as(const std::string& text, const std::vector<std::string>& sets, int workers,
                     comm::Group* group, const SiteGroup& site = {}, int parties = 0) {
  const auto session = open_session(text, sets);
  const auto units = static_cast<int>(sync::units_of(session->job()));
  if (group != nullptr) {
    // Of `parties` sites, the leaders have the lowest ranks. The last of four has no unit.
    if (parties == 0) parties = workers;
    if (parties == 4 && workers > 4) --parties;
    std::vector<std::vector<int>> whose(static_cast<size_t>(workers));
    for (int w = 0; w < parties; ++w) whose[static_cast<size_t>(w)] = lanes_of(w, parties, units);
    session->assign(whose, *group, std::chrono::seconds(60), {}, site);
  }
  double loss = 0;
  while (session->arena().counters().step < session->total_steps()) {
    const auto report = session->step();
    EXPECT_TRUE(report.ok()) << report.error().message();
    if (!report.ok()) return "failed";
    loss = report->loss;
  }
  std::string result = session->arena().weights_hash().hex() + " " + std::to_string(loss);
  if (session->has_test()) {
    const auto eval = session->evaluate();
    EXPECT_TRUE(eval.ok());
    for (const auto& [name, value] : eval->values) result += fmt::format(" {} {:a}", name, value);
  }
  return result;
}

std::vector<std::string> train_together(const std::string& text, std::vector<std::string> sets,
                                        int workers, Backend backend) {
  sets.emplace_back("threads=1");
  std::vector<std::string> names;
  for (int w = 0; w < workers; ++w) names.push_back(fmt::format("w{}", w));
  const auto hub = comm::LocalHub::create(names);
  comm::MemoryRendezvous rendezvous;
  std::vector<std::string> results(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      Result<std::unique_ptr<comm::Group>> group = [&]() -> Result<std::unique_ptr<comm::Group>> {
        if (backend == Backend::kLocal) return hub->join(w);
        MUSTER_TRY(auto device, comm::GlooDevice::open("127.0.0.1"));
        return comm::make_gloo_group({.device = std::move(device),
                                      .rendezvous = &rendezvous,
                                      .rank = w,
                                      .names = names,
                                      .shared_memory = workers != 2});
      }();
      ASSERT_TRUE(group.ok()) << group.error().message();
      results[static_cast<size_t>(w)] = train_as(text, sets, workers, group->get());
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

// Worker w is of site w % sites, or has none if it is alone there.
std::vector<std::string> train_at_sites(const std::string& text, std::vector<std::string> sets,
                                        int workers, int sites) {
  sets.emplace_back("threads=1");
  const auto hub = comm::LocalHub::create(std::vector<std::string>(workers, "w"));
  std::vector<std::shared_ptr<comm::LocalHub>> hubs;
  for (int s = 0; s < sites; ++s) {
    const int size = (workers - s + sites - 1) / sites;
    hubs.push_back(comm::LocalHub::create(std::vector<std::string>(size, "s")));
  }
  std::vector<std::string> results(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      const auto group = hub->join(w);
      const int number = w % sites;
      const auto site = hubs[static_cast<size_t>(number)]->join(w / sites);
      ASSERT_TRUE(group.ok() && site.ok());
      SiteGroup own;
      own.leader = number;
      if ((*site)->size() > 1) own.group = site->get();
      results[static_cast<size_t>(w)] = train_as(text, sets, workers, group->get(), own, sites);
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

void expect_same_bits(const std::string& text, const std::vector<std::string>& more = {}) {
  const auto expected = train_as(text, more, 1, nullptr);
  const auto check = [&](int workers, Backend backend, std::vector<std::string> sets) {
    sets.insert(sets.end(), more.begin(), more.end());
    for (const auto& result : train_together(text, sets, workers, backend)) {
      EXPECT_EQ(result, expected) << workers << " workers";
    }
  };
  check(1, Backend::kLocal, {});
  check(2, Backend::kGloo, {"sync.bucket=4096"});
  check(4, Backend::kLocal, {"sync.bucket=100000"});
  check(8, Backend::kGloo, {});
}

TEST(Workers, LenetWithSgd) { expect_same_bits(kLenet); }
TEST(Workers, ResnetWithBatchNormAndAugmentation) { expect_same_bits(kResnet); }
TEST(Workers, GptWithDropoutAdamwAndClipping) { expect_same_bits(kGpt); }

TEST(Workers, StochasticRounding) {
  const std::vector<std::string> stochastic = {"sync.rounding=stochastic"};
  for (const char* job : {kLenet, kResnet, kGpt}) expect_same_bits(job, stochastic);
  EXPECT_NE(train_as(kLenet, stochastic, 1, nullptr), train_as(kLenet, {}, 1, nullptr));
}

TEST(Workers, FewBits) {
  for (const char* bits : {"sync.bits=16", "sync.bits=8", "sync.bits=2"}) {
    expect_same_bits(kLenet, {bits});
  }
  expect_same_bits(kLenet, {"sync.bits=4", "sync.lane_groups=2"});
  for (const char* job : {kLenet, kResnet, kGpt}) {
    expect_same_bits(job, {"sync.bits=4", "sync.rotation=hadamard"});
  }
}

TEST(Workers, PeriodicStrategies) {
  const std::vector<std::string> rounds = {"sync.strategy=diloco", "sync.period=3"};
  const auto with = [&](const std::vector<std::string>& more) {
    auto sets = rounds;
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  };
  expect_same_bits(kLenet, with({}));
  expect_same_bits(kLenet, with({"sync.strategy=bmuf", "sync.bits=4", "sync.replicas=8"}));
  expect_same_bits(kResnet, with({"sync.strategy=average"}));
  expect_same_bits(kResnet, with({"sync.strategy=easgd", "sync.bits=8"}));
  expect_same_bits(kGpt, with({"sync.bits=4", "sync.rotation=hadamard"}));
  expect_same_bits(kResnet, with({"sync.merge=radial", "sync.bits=8"}));
  for (const char* job : {kLenet, kResnet, kGpt}) {
    expect_same_bits(job, with({"sync.strategy=gossip", "sync.rounds=2", "sync.period=1"}));
    expect_same_bits(job, with({"sync.strategy=sparseloco", "sync.rounds=2", "sync.period=1"}));
    expect_same_bits(job, with({"sync.strategy=desloc", "sync.rounds=3", "sync.period=1"}));
    expect_same_bits(job, with({"sync.strategy=sparta", "sync.rounds=2", "sync.period=1"}));
    expect_same_bits(job, with({"sync.strategy=local-then-lockstep", "sync.local=0.5"}));
  }
  expect_same_bits(
      kGpt, with({"sync.strategy=muloco", "optimizer.kind=muon", "optimizer.momentum=0.95"}));
  EXPECT_NE(train_as(kLenet, with({}), 1, nullptr),
            train_as(kLenet, with({"sync.strategy=average"}), 1, nullptr));
}

// Several workers compute a replica together, in lockstep. A replica has two lanes, so that of
// three workers one has none of it. Of four sites one has no replica.
TEST(Workers, Sites) {
  const auto expect_same = [](const char* text, std::vector<std::string> sets) {
    sets.insert(sets.begin(), "sync.replicas=4");
    const auto expected = train_as(text, sets, 1, nullptr);
    for (const auto& [workers, sites] : {std::pair(3, 1), {8, 4}}) {
      for (const auto& result : train_at_sites(text, sets, workers, sites)) {
        EXPECT_EQ(result, expected) << workers << " workers at " << sites << " sites";
      }
    }
  };
  for (const char* job : {kLenet, kResnet, kGpt}) {
    expect_same(job, {"sync.strategy=diloco", "sync.period=2", "sync.bits=4"});
    expect_same(job, {"sync.strategy=sparseloco", "sync.rounds=2", "sync.period=1"});
  }
  for (const std::string strategy : {"average", "bmuf", "easgd", "local-then-lockstep"}) {
    expect_same(kLenet, {"sync.strategy=" + strategy, "sync.period=2"});
  }
  for (const char* strategy : {"sync.strategy=topk", "sync.strategy=powersgd"}) {
    for (const char* job : {kLenet, kResnet}) expect_same(job, {strategy, "sync.rounds=2"});
  }
  for (const std::string strategy : {"gossip", "desloc", "sparta"}) {
    expect_same(kLenet, {"sync.strategy=" + strategy, "sync.rounds=2", "sync.period=1"});
  }
  expect_same(kGpt,
              {"sync.strategy=streaming", "sync.period=2", "sync.fragments=2", "sync.rounds=2"});
  expect_same(kGpt, {"sync.strategy=desloc", "sync.rounds=3", "sync.period=1"});
  expect_same(kResnet, {"sync.strategy=diloco", "sync.period=2", "sync.merge=radial"});
}

TEST(Workers, Streaming) {
  const std::vector<std::string> sets = {"sync.strategy=streaming", "sync.period=2",
                                         "sync.fragments=2", "sync.rounds=2"};
  for (const char* job : {kLenet, kResnet, kGpt}) expect_same_bits(job, sets);
  auto few = sets;
  few.insert(few.end(), {"sync.bits=4", "sync.rotation=hadamard"});
  expect_same_bits(kLenet, few);
}

TEST(Workers, CompressedGradients) {
  for (const std::string strategy : {"topk", "threshold", "onebit", "powersgd"}) {
    expect_same_bits(kLenet, {"sync.strategy=" + strategy, "sync.rounds=2"});
  }
  expect_same_bits(kResnet, {"sync.strategy=topk", "sync.rounds=2"});
  expect_same_bits(kResnet, {"sync.strategy=powersgd", "sync.rounds=2"});
  expect_same_bits(kGpt, {"sync.strategy=powersgd", "sync.rounds=2"});
}

// The weight of a Linear that streams its gradient is used by an embedding too: its gradient is
// complete only when both have been computed.
const char* const kTied = R"(
model: { use: tied }
data:
  train: { format: text, path: tinyshakespeare/input.txt, context: 8 }
batch: 16
lanes: 8
steps: 4
optimizer: { kind: sgd, lr: 0.1, momentum: 0.9 }
)";
TEST(Workers, ATiedWeightThatALinearCouldStream) { expect_same_bits(kTied); }

TEST(Workers, NativeSumsDependOnTheWorkers) {
  const std::vector<std::string> native = {"sync.reduction=native"};
  EXPECT_NE(train_together(kLenet, native, 4, Backend::kLocal)[0],
            train_as(kLenet, native, 1, nullptr));
}

}  // namespace
}  // namespace muster::train
