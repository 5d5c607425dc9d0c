#include "muster/launch/hosts.h"

#include <algorithm>
#include <filesystem>

#include "muster/config/node.h"

namespace muster::launch {
namespace {

using config::Node;

// ssh takes a word that begins with '-' for an option, and `ssh -oProxyCommand=...` runs programs.
Status check_word(const Node& node, std::string_view what, const std::string& text) {
  if (text.starts_with('-')) return node.error("{} '{}' must not begin with '-'", what, text);
  return {};
}

Result<std::vector<std::string>> texts(const Node* node, std::string_view what) {
  std::vector<std::string> all;
  if (node == nullptr) return all;
  if (!node->is_list()) return node->error("{} must be a list, not {}", what, node->described());
  for (const auto& item : node->items()) {
    MUSTER_TRY(all.emplace_back(), item.as_string(what));
  }
  return all;
}

Result<Host> read_host(const Node& node, const std::string& folder) {
  Host host;
  if (node.is_scalar()) {
    host.host = node.text();
  } else {
    config::ArgReader args(node, "a host");
    MUSTER_TRY(host.host, args.get_string("host"));
    MUSTER_TRY(host.workers, args.get_int("workers", 1));
    MUSTER_TRY(host.worker, args.get_string("worker", ""));
    MUSTER_TRY(host.servers, args.get_int("servers", -1));
    if (host.servers < 0 && args.get("servers") != nullptr) {
      return node.error("servers must be from 0 to 1024, not {}", host.servers);
    }
    MUSTER_TRY(host.server, args.get_string("server", ""));
    MUSTER_TRY(host.user, args.get_string("user", ""));
    MUSTER_TRY(host.port, args.get_int("port", 0));
    MUSTER_TRY(host.identity, args.get_string("identity", ""));
    MUSTER_TRY(host.address, args.get_string("address", ""));
    MUSTER_TRY(host.site, args.get_string("site", ""));
    MUSTER_TRY(host.options, texts(args.get("options"), "options"));
    MUSTER_RETURN_IF_ERROR(args.finish());
  }
  if (host.host.empty()) return node.error("host is empty; name a machine");
  MUSTER_RETURN_IF_ERROR(check_word(node, "host", host.host));
  MUSTER_RETURN_IF_ERROR(check_word(node, "user", host.user));
  MUSTER_RETURN_IF_ERROR(check_word(node, "site", host.site));
  const int64_t least = host.servers > 0 ? 0 : 1;  // some process must be there
  if (host.workers < least || host.workers > 1024) {
    return node.error("workers must be from {} to 1024, not {}", least, host.workers);
  }
  if (host.servers > 1024) {
    return node.error("servers must be from 0 to 1024, not {}", host.servers);
  }
  if (host.port < 0 || host.port > 65535) {
    return node.error("port must be from 1 to 65535, not {}", host.port);
  }
  if (!host.identity.empty()) {
    host.identity = (std::filesystem::path(folder) / host.identity).lexically_normal().string();
  }
  return host;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view yaml, const std::string& name) {
  MUSTER_TRY(const auto tree, config::parse_yaml(yaml, name));
  if (!tree.is_list() || tree.items().empty()) {
    return Error(ErrorKind::kUsage, "{} must be a list of hosts, like '- host: 10.0.0.1', not {}",
                 name, tree.described());
  }
  std::error_code failed;
  const auto folder = std::filesystem::absolute(name, failed).parent_path().string();
  std::vector<Host> hosts;
  for (const auto& item : tree.items()) {
    MUSTER_TRY(hosts.emplace_back(), read_host(item, folder));
  }
  return hosts;
}

Result<std::vector<size_t>> spread_servers(const std::vector<Host>& hosts, int64_t total) {
  int64_t left = total;
  std::vector<int64_t> counts;
  std::vector<size_t> open;  // those that say nothing
  for (size_t i = 0; i < hosts.size(); ++i) {
    counts.push_back(std::max<int64_t>(hosts[i].servers, 0));
    left -= counts.back();
    if (hosts[i].servers < 0) open.push_back(i);
  }
  if (left < 0 || (left > 0 && open.empty())) {
    return Error(
        ErrorKind::kUsage,
        "the hosts have {} parameter servers and tables.servers is {}: make them the same, "
        "or leave `servers` out of a host",
        total - left, total);
  }
  for (int64_t i = 0; i < left; ++i) ++counts[open[static_cast<size_t>(i) % open.size()]];
  std::vector<size_t> places;
  while (std::ssize(places) < total) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (counts[i]-- > 0) places.push_back(i);
    }
  }
  return places;
}

Result<std::vector<Host>> read_hosts(FileSystem& files, const std::string& path) {
  MUSTER_TRY(const auto text, files.read(path));
  return parse_hosts(text, path);
}

}  // namespace muster::launch
