// A net from the job file's list of layers.
//
//   model:
//     layers:
//       - conv2d: { out: 20, kernel: 5 }
//       - maxpool2d: { kernel: 2 }
//       - relu
//       - flatten
//       - linear: { out: classes }
//
// An item is a layer's name, or a map of that name to its options. Input sizes follow from the data
// and are carried from layer to layer; what does not fit is an error that says where in the job
// file and which shapes. Children are numbered like nn.Sequential's ("0.weight", "4.bias"), unless
// a layer has the option `name`. README.md lists the layers.
#pragma once

#include <memory>
#include <string>

#include "muster/config/node.h"
#include "muster/data/schema.h"
#include "muster/model/net.h"

namespace muster::model {

// `loss` decides what the last layer must give: one score per class for cross_entropy, as many
// values as targets for mse; for other losses it may give anything.
Result<std::shared_ptr<Net>> make_layer_list(const config::Node& layers, const std::string& loss,
                                             const data::Schema& schema,
                                             const std::shared_ptr<LaneContext>& lane);

}  // namespace muster::model
