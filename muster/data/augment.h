// Random changes to images while training: shift, crop, flip.
//
// Keyed by (seed, pass, sample), so that whoever computes sample 17 of pass 3 makes the same change
// to it. In this order:
//   shift  moves the image by dy, dx, each uniform in [-shift, shift]
//   crop   puts `crop` pixels of padding around it and cuts the old size out of that at a uniform
//          place; so it also moves the image, by up to `crop` pixels, after the shift
//   flip   mirrors left to right, every second time
// Each draws its numbers whether or not it is on, so switching one on leaves the others as they
// were.
//
// Gaps are filled with what a raw zero has become (Schema::padding), as if the image had been
// changed before it was scaled to mean and deviation: black stays black.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/schema.h"

namespace muster::data {

// A plain value; safe for concurrent use.
class Augmenter {
 public:
  // Changes nothing.
  Augmenter() = default;
  // Refuses (kJob) what is not an image of floats {C, H, W}, and moves as large as the image.
  static Result<Augmenter> make(const config::AugmentOptions& options, const Schema& schema);

  bool active() const { return shift_ > 0 || crop_ > 0 || flip_; }
  // Changes the image in place.
  void apply(uint64_t seed, uint64_t pass, uint64_t sample, float* image) const;

 private:
  void move(float* image, int64_t dy, int64_t dx) const;
  void mirror(float* image) const;

  int64_t shift_ = 0;
  int64_t crop_ = 0;
  bool flip_ = false;
  int64_t channels_ = 0;
  int64_t height_ = 0;
  int64_t width_ = 0;
  std::vector<float> padding_;  // of each channel
};

}  // namespace muster::data
