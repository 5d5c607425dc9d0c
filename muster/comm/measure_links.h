// How fast the links between the members of a group are, as its collectives see them.
#pragma once

#include <functional>

#include "muster/base/result.h"
#include "muster/comm/group.h"

namespace muster::comm {

struct Links {
  double rate = 0;   // bytes per second that a member sends, and receives at the same time
  double delay = 0;  // seconds, from one member to another
};

// Collective, of at least two members; takes about a second, on very slow links some. All get the
// same figures, those that the member of rank 0 has seen. The rate is that of what is sent, without
// the network's own headers, in an allreduce among all members: if links are not all the same, that
// of the slowest. `progress` is called again and again meanwhile.
Result<Links> measure_links(Group& group, const OpOptions& options = {},
                            const std::function<void()>& progress = {});

}  // namespace muster::comm
