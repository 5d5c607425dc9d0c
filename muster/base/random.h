// Random numbers that depend on nothing but what they are for.
//
// A training job draws random numbers in many places (initial weights, dropout, augmentation, the
// order of samples) on many threads of many machines. A generator with hidden state would make the
// draw depend on who drew before. Here a draw is a pure function of a key and a counter:
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011), which passes BigCrush and needs no state. Whoever computes sample 17 of pass 3 gets the
// numbers of sample 17 of pass 3.
#pragma once

#include <array>
#include <cstdint>

namespace muster {

// What the numbers are for. Streams of different purposes never meet, whatever their other
// coordinates. Part of the format of a run: never renumber.
enum class Purpose : uint32_t {
  kInit = 1,        // initial weights: (tensor)
  kDropout = 2,     // (step, lane, layer)
  kAugment = 3,     // (pass, sample)
  kOrder = 4,       // (pass)
  kRounding = 5,    // (step, lane)
  kOwnLoop = 6,     // seeds of torch's generator: (step, lane)
  kRotation = 7,    // (step)
  kGossip = 8,      // pairs of replicas: (round)
  kLowRank = 9,     // columns of right factors: (step, tensor and column)
  kSubset = 10,     // places of weights that replicas average: (round, block)
  kTable = 11,      // first weights of a row: (table, key)
  kAdmission = 12,  // of keys to a table: (table and key, step)
  kPack = 13,       // the order in which samples are packed
  kUser = 1000      // models and data sets from outside: kUser, kUser + 1, ...
};

// One block of the generator: 128 random bits for a 64-bit key and a 128-bit counter.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key,
                                         std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A stream of random numbers named by (seed, purpose, a, b): 2^64 blocks of 128 bits, each
// reachable at once. Copy it freely; it is 32 bytes.
//
// The key is a hash of all four names, so that streams of one job are as unrelated as those of
// different seeds. At 2^64 keys a job that opens 2^20 streams has a chance of 2^-25 that any two
// are the same one.
class RandomStream {
 public:
  RandomStream(uint64_t seed, Purpose purpose, uint64_t a = 0, uint64_t b = 0);

  // Block number i of the stream: a pure function.
  std::array<uint32_t, 4> block(uint64_t i) const {
    return philox(key_, {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0});
  }
  std::array<uint32_t, 2> key() const { return key_; }

  // The next number in order. For single draws; bulk users call block().
  uint32_t next_u32();
  uint64_t next_u64();
  // Uniform in [0, n), unbiased; n > 0.
  uint64_t below(uint64_t n);
  // Uniform in [0, 1), a multiple of 2^-24.
  float uniform();
  // Normal with mean 0 and deviation 1 (Box-Muller in double, so that it is the same on every
  // machine whose libm rounds log, sqrt and cos to the same float).
  float normal();

 private:
  std::array<uint32_t, 2> key_;
  uint64_t next_block_ = 0;
  std::array<uint32_t, 4> buffer_{};
  int used_ = 4;
};

}  // namespace muster
