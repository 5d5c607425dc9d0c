// Who was hit by a fault and has not rejoined yet.
#pragma once

#include <string>
#include <vector>

#include "tools/muster-launch/verify/fault_target.h"

namespace muster::cli {

class Awaited {
 public:
  // `target` as it was when fault number `fault` hit it.
  void add(size_t fault, const Target& target) { out_.push_back({fault, target}); }
  bool nobody() const { return out_.empty(); }

  struct Back {
    size_t fault;
    std::string id;
    bool last;  // nobody else that this fault hit is awaited
    bool operator==(const Back&) const = default;
  };
  // Those who are among these members again, as an incarnation that was not hit.
  std::vector<Back> seen(const std::vector<Target>& members);

 private:
  struct Out {
    size_t fault;
    Target target;
  };
  std::vector<Out> out_;
};

}  // namespace muster::cli
