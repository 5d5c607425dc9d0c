#include "muster/own_loop/lent_memory.h"

#include <optional>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(LentMemoryTest, StateLivesAsLongAsItsOwners) {
  std::optional<LentMemory> memory(std::in_place);
  std::weak_ptr<const void> watched;
  std::shared_ptr<const void> owner;
  const std::byte* inside = nullptr;
  {
    auto state = memory->allocate(1000, BufferUse::kState);
    state.data()[999] = std::byte{7};
    inside = state.data() + 999;
    owner = memory->owner(inside);
    EXPECT_EQ(memory->owner(state.data()), owner);
    EXPECT_EQ(memory->owner(state.data() + 1000), nullptr);
    watched = owner;
  }
  EXPECT_EQ(memory->owner(inside), nullptr) << "the worker has given it back";
  memory.reset();
  ASSERT_NE(owner, nullptr);
  EXPECT_EQ(*inside, std::byte{7});
  owner.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(LentMemoryTest, WithoutOwnersItIsFreedAtOnce) {
  LentMemory memory;
  auto state = memory.allocate(64, BufferUse::kState);
  const std::weak_ptr<const void> watched = memory.owner(state.data());
  EXPECT_FALSE(watched.expired());
  state = Buffer();
  EXPECT_TRUE(watched.expired());
}

TEST(LentMemoryTest, OnlyStateIsLent) {
  LentMemory memory;
  const auto sums = memory.allocate(64, BufferUse::kSums);
  EXPECT_EQ(memory.owner(sums.data()), nullptr);
  EXPECT_EQ(memory.owner(nullptr), nullptr);
}

}  // namespace
}  // namespace muster
