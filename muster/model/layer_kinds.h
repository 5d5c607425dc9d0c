// What layer_list.cc knows about each kind of layer: its options, what it takes, what it gives.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "muster/config/node.h"
#include "muster/data/schema.h"
#include "muster/model/layers.h"

namespace muster::model {

// The shape of one sample between two layers.
struct Flow {
  std::vector<int64_t> shape;
  bool tokens = false;  // whole numbers that stand for words, not values
  bool ids = false;     // such numbers, too: records of ids (data::Schema)

  bool is_image() const { return !tokens && shape.size() == 3; }     // channels, height, width
  bool is_flat() const { return !tokens && shape.size() == 1; }      // features
  bool is_sequence() const { return !tokens && shape.size() == 2; }  // length, width
};

// One layer to be made.
struct Site {
  std::string_view kind;
  const config::Node& item;  // for errors
  config::ArgReader& args;
  const Flow& in;
  const data::Schema& schema;
  const std::shared_ptr<LaneContext>& lane;
};

struct MadeLayer {
  std::shared_ptr<Layer> layer;
  Flow out;
};

struct LayerKind {
  std::string_view name;
  Result<MadeLayer> (*make)(const Site& site);
};

// In alphabetical order.
std::span<const LayerKind> layer_kinds();

// A sequence of layers from a list; `in` is what the first one gets, the result's `out` what the
// last one gives. Defined in layer_list.cc; layers that hold layers (residual) use it too.
struct MadeSequence {
  std::shared_ptr<Sequence> sequence;
  Flow out;
};
Result<MadeSequence> make_sequence(const config::Node& layers, const Flow& in,
                                   const data::Schema& schema,
                                   const std::shared_ptr<LaneContext>& lane);

}  // namespace muster::model
