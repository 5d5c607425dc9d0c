// The zoo: well-known nets, each a short file. Arguments come from the job's `args`; input sizes
// and the number of outputs from the data.
#pragma once

#include <memory>

#include "muster/config/node.h"
#include "muster/data/schema.h"
#include "muster/model/net.h"

namespace muster::model {

// LeNet-5 as it is used today, for images of 28x28 and above: two convolutions of 5x5 (20 and 50
// channels) with pooling, one hidden layer of 500. 431,080 parameters on MNIST. No arguments.
// Names: conv1, conv2, fc1, fc2.
Result<std::shared_ptr<Net>> make_lenet(const config::Node& args, const data::Schema& schema,
                                        const std::shared_ptr<LaneContext>& lane);

// Linear layers with an activation between.
//   hidden      widths of the hidden layers     [2048, 2048]: 5,824,522 parameters on MNIST
//   activation  relu, gelu, tanh, sigmoid, silu  relu
//   dropout     after each activation            0
// Names: fc1, fc2, ...
Result<std::shared_ptr<Net>> make_mlp(const config::Node& args, const data::Schema& schema,
                                      const std::shared_ptr<LaneContext>& lane);

// Residual nets for images (He et al. 2015).
//   size   8, 14, 20, 32, 44, 56: three stages, for small images; 18, 34: four stages; 50: four
//          stages of bottlenecks                                              20
//   stem   large (7x7 of stride 2, then pooling) or small (3x3). Sizes 18, 34 and 50 only;
//          default: large for images of 64x64 and above, as torchvision; else small
//   width  channels of the first stage                  16 for three stages, 64 for four
// Names as torchvision's: conv1, bn1, layer1.0.conv1, ..., layer2.0.downsample.0, fc. Three-stage
// nets use the same names with layer1 to layer3, and projections where the size changes ("option
// B").
Result<std::shared_ptr<Net>> make_resnet(const config::Node& args, const data::Schema& schema,
                                         const std::shared_ptr<LaneContext>& lane);

// A language model: GPT-2's architecture, as nanoGPT writes it, with its names (transformer.wte,
// transformer.h.0.attn.c_attn, ...). The output layer shares its weight with the embedding; that
// weight is stored once, as transformer.wte.weight.
//   size     tiny (4 layers, 4 heads, width 128), small (6, 6, 384), gpt2 (12, 12, 768),
//   gpt2-medium
//            (24, 16, 1024)                                tiny
//   layers, heads, width    instead of, or on top of, size
//   context  the longest text it can take                  the data's
//   dropout                                                0
//   bias     in linear layers and norms                    false
Result<std::shared_ptr<Net>> make_gpt(const config::Node& args, const data::Schema& schema,
                                      const std::shared_ptr<LaneContext>& lane);

// The click models. They need records of ids, with or without numbers, and two classes (data of
// format ctr or libsvm), and a table (tables.width) of which each id has a row. A row is no
// parameter: see rows.h. If the data has values of ids, a row is multiplied by that of its id.

// DLRM (Naumov et al. 2019): dot products of all pairs of rows, and of rows with a vector that is
// made of the numbers.
//   bottom  widths of the hidden layers between the numbers and that vector  [64]
//   top     widths of the hidden layers between the products and the scores  [64, 32]
// Names: bottom.fc1, ..., top.fc1, ...
Result<std::shared_ptr<Net>> make_dlrm(const config::Node& args, const data::Schema& schema,
                                       const std::shared_ptr<LaneContext>& lane);

// DeepFM (Guo et al. 2017): a factorization machine beside dense layers. A row is a first-order
// weight, then factors, so tables.width must be at least 2.
//   hidden  widths of the hidden layers  [64, 32]
// Names: deep.fc1, ...
Result<std::shared_ptr<Net>> make_deepfm(const config::Node& args, const data::Schema& schema,
                                         const std::shared_ptr<LaneContext>& lane);

// Wide & Deep (Cheng et al. 2016): a linear model beside dense layers. A row is a weight of the
// linear model, then a vector for the dense layers, so tables.width must be at least 2.
//   hidden  widths of the hidden layers  [64, 32]
// Names: deep.fc1, ...
Result<std::shared_ptr<Net>> make_wide_deep(const config::Node& args, const data::Schema& schema,
                                            const std::shared_ptr<LaneContext>& lane);

// Two towers of dense layers, for example of a user and an item, and the dot product of their
// outputs. The numbers belong to the left one.
//   left    how many ids, from the first, belong to the left tower  half of them
//   hidden  widths of the hidden layers of either tower             [64]
//   out     width of either tower's output                          32
// Names: left.fc1, ..., right.fc1, ...
Result<std::shared_ptr<Net>> make_two_tower(const config::Node& args, const data::Schema& schema,
                                            const std::shared_ptr<LaneContext>& lane);

}  // namespace muster::model
