// A session keeps its state, its sums and its batches in the memory it is given, and nowhere else;
// which memory that is changes no bit.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

// A pretend device: each buffer has pages of its own and ends at one that nobody may touch. What is
// not promised to be zero is not.
class GuardedMemory final : public Memory {
 public:
  Buffer allocate(size_t bytes, BufferUse use) override {
    const size_t used = (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
    const size_t size = pages(used) + kPage;
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    auto* first = static_cast<std::byte*>(mapped);
    EXPECT_EQ(mprotect(first + size - kPage, kPage, PROT_NONE), 0);
    if (use == BufferUse::kBatch) std::memset(first, 0xff, size - kPage);
    auto* data = first + size - kPage - used;
    const std::lock_guard lock(mutex_);
    live_[data] = {first, size, bytes};
    bytes_[use] += bytes;
    return {*this, data, bytes};
  }
  size_t allocated(BufferUse use) const {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(use);
    return found == bytes_.end() ? 0 : found->second;
  }
  bool holds(const void* address) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(live_, [&](const auto& one) {
      return address >= one.first && address < one.first + one.second.bytes;
    });
  }
  size_t live() const {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }

 private:
  static constexpr size_t kPage = 4096;
  static size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  void free(std::byte* data, size_t /*size*/) override {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(data);
    ASSERT_NE(found, live_.end());
    munmap(found->second.first, found->second.size);
    live_.erase(found);
  }
  struct Mapping {
    std::byte* first = nullptr;
    size_t size = 0;
    size_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::byte*, Mapping> live_;
  std::map<BufferUse, size_t> bytes_;
};

const char* const kJob = R"(
model: { layers: [ linear: { out: 3000 }, batchnorm, relu, linear: { out: 2 } ] }
data: { train: { format: points }, test: { format: points, args: { size: 70 } } }
batch: 24
lanes: 4
steps: 12
optimizer: { kind: adam, lr: 0.01 }
threads: 2
)";

TEST(SessionMemory, HoldsStateSumsAndBatchesAndChangesNoBit) {
  const auto plain = open_session(kJob);
  GuardedMemory memory;
  {
    Registries registries = testing_registries();
    registries.memory = &memory;
    auto opened = Session::open(make_job(kJob), registries);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    Session& session = **opened;
    EXPECT_EQ(memory.allocated(BufferUse::kState), session.arena().bytes().size());
    EXPECT_TRUE(memory.holds(session.arena().weights().data()));
    EXPECT_TRUE(memory.holds(&session.arena().counters()));
    EXPECT_EQ(memory.allocated(BufferUse::kSums),
              session.arena().layout().block_elements() * sizeof(int32_t));
    ASSERT_TRUE(session.begin_fingerprint().ok());
    ASSERT_TRUE(session.fingerprint().ok());
    ASSERT_TRUE(session.try_forward().ok());
    const size_t tried = memory.allocated(BufferUse::kBatch);
    EXPECT_GT(tried, 0U);
    for (int64_t step = 0; step < plain->total_steps(); ++step) {
      ASSERT_TRUE(plain->step().ok());
      ASSERT_TRUE(session.step().ok());
    }
    const size_t training = memory.allocated(BufferUse::kBatch);
    EXPECT_GT(training, tried);
    const auto expected = plain->evaluate();
    const auto evaluated = session.evaluate();
    ASSERT_TRUE(expected.ok() && evaluated.ok());
    EXPECT_EQ(evaluated->at("loss"), expected->at("loss"));
    EXPECT_GT(memory.allocated(BufferUse::kBatch), training);
    EXPECT_EQ(session.arena().weights_hash().hex(), plain->arena().weights_hash().hex());
  }
  EXPECT_EQ(memory.live(), 0U);
}

}  // namespace
}  // namespace muster::train
