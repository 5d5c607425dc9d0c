// TensorFlow's tf.Example: features by name, each a list of byte strings, floats or integers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "muster/data/blocks/record.h"

namespace muster::data {

// Over the bytes of one message, which must outlive it.
class Example final : public Record {
 public:
  explicit Example(std::span<const std::byte> message) : message_(message) {}
  Status get(std::span<const std::string> names, std::span<Value> values) const override;
  std::vector<std::string> names() const override;

 private:
  std::span<const std::byte> message_;
};

}  // namespace muster::data
