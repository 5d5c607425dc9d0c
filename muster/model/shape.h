// Small things about shapes that need no torch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/schema.h"

namespace muster::model {

using Pair = std::array<int64_t, 2>;  // height and width

// "1x28x28"; "a single number" for an empty shape.
std::string shape_text(const std::vector<int64_t>& shape);

// How many numbers a model for this data gives per sample (or per place of a text): the classes, or
// as many as a sample has target values.
int64_t output_features(const data::Schema& schema);

// Whether the samples are images [channels, height, width]; otherwise an error that names the
// model.
Status need_images(std::string_view model, const data::Schema& schema);

}  // namespace muster::model
