// Messages of a simulated run as they come out at the other end, and what workers ask servers for.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "muster/base/check.h"
#include "muster/ps/wire.h"

namespace muster::ps::simulation {

template <typename Message>
Message over_the_wire(const Message& message) {
  auto got = decode(Bytes(encode(message).flat()));
  MUSTER_CHECK(got.ok(), "a message cannot be read");
  return std::get<Message>(*std::move(got));
}

using Request = std::variant<ReadRequest, OrderRequest, WholeRequest>;

// A request that a server has.
struct Asked {
  int client = 0;  // its place
  Request request;
  uint64_t least = 0;  // Witness::latest when it was sent
};

}  // namespace muster::ps::simulation
