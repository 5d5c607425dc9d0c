// The file that describes a laboratory: which hosts it has, and how good their links are.
//
//   rate: 100mbit                  # for all hosts that say nothing else
//   hosts:
//     - paris                      # the same as { name: paris }
//     - { name: tokyo, rate: 10mbit, delay: 120ms, loss: 0.001 }
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::lab {

// A host's link to the switch.
struct LinkOptions {
  double rate = 0;   // bits a second, each way; 0: as fast as it goes
  Duration delay{};  // of what the host sends; a round trip of two hosts takes the sum of theirs
  double loss = 0;   // the fraction of the packets it sends that is lost
  bool operator==(const LinkOptions&) const = default;
};

struct HostOptions {
  std::string name;
  LinkOptions link;
  bool operator==(const HostOptions&) const = default;
};

inline constexpr size_t kMostHosts = 200;

// "10mbit", "1gbit", "500kbit", with a fraction if need be; in bits a second, from 1e3 to 1e12.
std::optional<double> parse_rate(std::string_view text);

// `name`: of the file, for errors.
Result<std::vector<HostOptions>> parse_hosts_file(std::string_view yaml, const std::string& name);
Result<std::vector<HostOptions>> read_hosts_file(FileSystem& files, const std::string& path);

}  // namespace muster::lab
