#include "muster/lab/hosts_file.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "muster/config/node.h"
#include "muster/config/units.h"

namespace muster::lab {
namespace {

using config::ArgReader;
using config::Node;

constexpr double kLeastRate = 1e3;  // bits a second
constexpr double kMostRate = 1e12;

Result<LinkOptions> read_link(const Node& node, ArgReader& args, LinkOptions link) {
  MUSTER_TRY(const std::string rate, args.get_string("rate", ""));
  MUSTER_TRY(const std::string delay, args.get_string("delay", ""));
  MUSTER_TRY(link.loss, args.get_number("loss", link.loss));
  if (!rate.empty()) {
    const auto bits = parse_rate(rate);
    if (!bits) {
      return node.error("rate must be from 1kbit to 1000gbit, like 100mbit, not '{}'", rate);
    }
    link.rate = *bits;
  }
  if (!delay.empty()) {
    const auto seconds = config::parse_duration(delay);
    if (!seconds || *seconds > 60) {
      return node.error("delay must be a time of at most 60s, like 25ms, not '{}'", delay);
    }
    link.delay = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  }
  if (link.loss < 0 || link.loss >= 1) {
    return node.error("loss must be at least 0 and less than 1, not {}", link.loss);
  }
  return link;
}

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !text.empty() && std::ranges::all_of(text, allowed);
}

Result<HostOptions> read_host(const Node& node, const LinkOptions& usual) {
  HostOptions host;
  host.link = usual;
  if (node.is_scalar()) {
    host.name = node.text();
  } else {
    ArgReader args(node, "a host");
    MUSTER_TRY(host.name, args.get_string("name"));
    MUSTER_TRY(host.link, read_link(node, args, usual));
    MUSTER_RETURN_IF_ERROR(args.finish());
  }
  if (!is_name(host.name)) {
    return node.error("a host's name consists of a-z, 0-9 and '-', which '{}' does not", host.name);
  }
  if (host.name == "hub") return node.error("'hub' is the switch; give the host another name");
  return host;
}

}  // namespace

std::optional<double> parse_rate(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const double factor = unit == "kbit" ? 1e3 : unit == "mbit" ? 1e6 : unit == "gbit" ? 1e9 : 0;
  const double bits = number * factor;
  if (!(bits >= kLeastRate && bits <= kMostRate)) return std::nullopt;
  return bits;
}

Result<std::vector<HostOptions>> parse_hosts_file(std::string_view yaml, const std::string& name) {
  MUSTER_TRY(const auto tree, config::parse_yaml(yaml, name));
  if (!tree.is_map()) {
    return Error(ErrorKind::kUsage, "{} must have 'hosts:' with a list of names, not {}", name,
                 tree.described());
  }
  ArgReader args(tree, "a laboratory");
  MUSTER_TRY(const LinkOptions usual, read_link(tree, args, {}));
  const Node* list = args.get("hosts");
  MUSTER_RETURN_IF_ERROR(args.finish());
  if (list == nullptr || !list->is_list() || list->items().empty()) {
    return tree.error("hosts must be a list of at least one host");
  }
  if (list->items().size() > kMostHosts) {
    return list->error("there can be at most {} hosts", kMostHosts);
  }
  std::vector<HostOptions> hosts;
  std::set<std::string> names;
  for (const auto& item : list->items()) {
    MUSTER_TRY(hosts.emplace_back(), read_host(item, usual));
    if (!names.insert(hosts.back().name).second) {
      return item.error("there are two hosts '{}'", hosts.back().name);
    }
  }
  return hosts;
}

Result<std::vector<HostOptions>> read_hosts_file(FileSystem& files, const std::string& path) {
  MUSTER_TRY(const auto text, files.read(path));
  return parse_hosts_file(text, path);
}

}  // namespace muster::lab
