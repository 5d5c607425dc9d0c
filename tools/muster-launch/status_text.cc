#include "tools/muster-launch/status_text.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "muster/base/text.h"

#include "tools/muster/text_table.h"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;
using Align = TextTable::Align;

constexpr size_t kEvents = 10;  // for people; JSON has all

Paint paint_of(const std::string& standing) {
  if (standing == "member") return Paint::kGood;
  return standing == "quarantined" ? Paint::kBad : Paint::kWarning;
}

std::string lane_time(double seconds) {
  if (seconds <= 0) return "-";
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1000) : fmt::format("{:.3g} s", seconds);
}

std::string head(const roster::StatusReport& report, const std::string& address,
                 const Console& console) {
  std::string text = fmt::format("{}  at {}, up {}\n", console.painted(Paint::kBold, report.job),
                                 address, human_seconds(seconds(report.up)));
  text += fmt::format("step {}, {} on {}", with_commas(report.step), counted(report.lanes, "lane"),
                      counted(report.roster.members.size(), "worker"));
  text += report.roster.number == 0
              ? ", no roster yet\n"
              : fmt::format(", roster {}\n", roster::sequence_of(report.roster.number));
  if (!report.ended.empty()) {
    text += console.painted(report.finished ? Paint::kGood : Paint::kWarning,
                            "ended: " + report.ended) +
            "\n";
  } else if (report.roster.waiting || report.roster.number == 0) {
    text += console.painted(
                Paint::kWarning,
                fmt::format("waiting for workers: at least {} are needed", report.min_workers)) +
            "\n";
  }
  return text;
}

// Where another one leads, it has no lanes of its own.
std::string site_text(const roster::Member& member) {
  return member.site().empty() ? "" : fmt::format(" ({})", member.site());
}

std::string workers_table(const roster::StatusReport& report, const Console& console) {
  TextTable table({{"worker", Align::kLeft, true},
                   {"host", Align::kLeft, true},
                   {"process", Align::kRight, false},
                   {"state", Align::kLeft, false},
                   {"lanes", Align::kLeft, true},
                   {"per lane", Align::kRight, false},
                   {"step", Align::kRight, false},
                   {"doing", Align::kLeft, false},
                   {"heard", Align::kRight, false}});
  for (const auto& worker : report.workers) {
    table.add({worker.member.key.id,
               worker.member.host + site_text(worker.member),
               worker.process == 0 ? "-" : fmt::format("{}", worker.process),
               {worker.standing, paint_of(worker.standing)},
               worker.member.lanes.empty() ? "-" : lanes_text(worker.member.lanes),
               lane_time(worker.lane_seconds),
               with_commas(worker.beat.step),
               std::string(roster::activity_name(worker.beat.activity)),
               human_seconds(seconds(worker.heard_ago)) + " ago"});
  }
  return table.empty() ? "" : "\n" + table.render(console);
}

const char* standing_name(ps::ServerStatus::Standing standing) {
  using Standing = ps::ServerStatus::Standing;
  switch (standing) {
    case Standing::kReady:
      return "ready";
    case Standing::kJoining:
      return "joining";
    case Standing::kWaiting:
      return "waiting";
  }
  return "?";
}

std::string servers_head(const ps::ServersStatus& servers, const Console& console) {
  using Standing = ps::ServerStatus::Standing;
  const auto ready =
      std::ranges::count(servers.servers, Standing::kReady, &ps::ServerStatus::standing);
  if (servers.epoch > 0) {
    return fmt::format("\n{}, {} ready, epoch {}, copies {}\n",
                       counted(servers.servers.size(), "parameter server"), ready, servers.epoch,
                       servers.copies);
  }
  return "\n" +
         console.painted(Paint::kWarning,
                         fmt::format("waiting for parameter servers: {} of {} have registered",
                                     servers.servers.size(), servers.first)) +
         "\n";
}

std::string servers_table(const std::optional<ps::ServersStatus>& servers,
                          const std::string& registry, const Console& console) {
  if (!servers) {
    return registry.empty()
               ? ""
               : fmt::format("\nthe registry of parameter servers at {} does not answer\n",
                             registry);
  }
  TextTable table({{"server", Align::kLeft, true},
                   {"host", Align::kLeft, true},
                   {"process", Align::kRight, false},
                   {"state", Align::kLeft, false},
                   {"rows", Align::kRight, false},
                   {"heard", Align::kRight, false},
                   {"cannot reach", Align::kLeft, true}});
  for (const auto& server : servers->servers) {
    const bool ready = server.standing == ps::ServerStatus::Standing::kReady;
    table.add({server.key.id,
               server.host,
               fmt::format("{}", server.process),
               {standing_name(server.standing), ready ? Paint::kGood : Paint::kWarning},
               with_commas(server.rows),
               human_seconds(seconds(server.heard_ago)) + " ago",
               server.unreachable.empty()
                   ? "-"
                   : fmt::format("{}", fmt::join(server.unreachable, ", "))});
  }
  std::string text = servers_head(*servers, console) + (table.empty() ? "" : table.render(console));
  for (const auto& server : servers->servers) {
    if (!server.reason.empty())
      text += fmt::format("{} was removed: {}\n", server.key.id, server.reason);
  }
  return text;
}

ordered_json servers_json(const std::optional<ps::ServersStatus>& servers,
                          const std::string& registry) {
  if (registry.empty()) return nullptr;
  ordered_json all = {{"registry", registry}, {"answers", servers.has_value()}};
  if (!servers) return all;
  ordered_json list = ordered_json::array();
  for (const auto& server : servers->servers) {
    list.push_back({{"id", server.key.id},
                    {"host", server.host},
                    {"address", server.address},
                    {"process", server.process},
                    {"state", standing_name(server.standing)},
                    {"epoch", server.entered},
                    {"rows", server.rows},
                    {"heard_seconds_ago", seconds(server.heard_ago)},
                    {"cannot_reach", server.unreachable},
                    {"removed_because", server.reason}});
  }
  all["epoch"] = servers->epoch;
  all["copies"] = servers->copies;
  all["first"] = servers->first;
  all["servers"] = std::move(list);
  return all;
}

std::string events_table(const roster::StatusReport& report, const Console& console) {
  TextTable table({{"", Align::kRight, false}, {"", Align::kLeft, true}});
  const auto events = without_repeats(report.events);
  const size_t first = events.size() - std::min(kEvents, events.size());
  for (size_t i = first; i < events.size(); ++i) {
    const auto& event = events[i];
    table.add({{human_seconds(seconds(event.ago)) + " ago", Paint::kDim}, event.text});
  }
  return table.empty() ? "" : "\nlast events\n" + table.render(console);
}

ordered_json worker_json(const roster::WorkerStatus& worker) {
  return {{"id", worker.member.key.id},
          {"host", worker.member.host},
          {"process", worker.process},
          {"state", worker.standing},
          {"lanes", worker.member.lanes},
          {"role", worker.member.role},
          {"groups", worker.member.groups},
          {"lane_threads", worker.member.lane_threads},
          {"lane_seconds", worker.lane_seconds},
          {"step", worker.beat.step},
          {"doing", roster::activity_name(worker.beat.activity)},
          {"heard_seconds_ago", seconds(worker.heard_ago)}};
}

}  // namespace

std::string lanes_text(const std::vector<int32_t>& lanes) {
  std::string text;
  for (size_t i = 0; i < lanes.size();) {
    size_t last = i;
    while (last + 1 < lanes.size() && lanes[last + 1] == lanes[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += i == last ? fmt::format("{}", lanes[i]) : fmt::format("{}-{}", lanes[i], lanes[last]);
    i = last + 1;
  }
  return text;
}

std::vector<roster::EventLine> without_repeats(const std::vector<roster::EventLine>& events) {
  std::vector<roster::EventLine> kept;
  for (size_t i = 0; i < events.size(); ++i) {
    bool repeated = false;
    for (size_t later = i + 1; later < events.size() && !repeated; ++later) {
      const std::string& text = events[later].text;
      repeated = text.starts_with("roster ") && text.find(events[i].text) != std::string::npos;
      if (text.starts_with("roster ")) break;
    }
    if (!repeated) kept.push_back(events[i]);
  }
  return kept;
}

std::string status_text(const roster::StatusReport& report, const std::string& address,
                        const std::optional<ps::ServersStatus>& servers, const Console& console) {
  return head(report, address, console) + workers_table(report, console) +
         servers_table(servers, report.servers, console) + events_table(report, console);
}

ordered_json status_json(const roster::StatusReport& report, const std::string& address,
                         const std::optional<ps::ServersStatus>& servers) {
  ordered_json workers = ordered_json::array();
  for (const auto& worker : report.workers) workers.push_back(worker_json(worker));
  ordered_json events = ordered_json::array();
  for (const auto& event : report.events) {
    events.push_back({{"seconds_ago", seconds(event.ago)},
                      {"roster", roster::sequence_of(event.roster)},
                      {"text", event.text}});
  }
  return {{"job", report.job},
          {"address", address},
          {"up_seconds", seconds(report.up)},
          {"step", report.step},
          {"lanes", report.lanes},
          {"min_workers", report.min_workers},
          {"max_workers", report.max_workers},
          {"roster", roster::sequence_of(report.roster.number)},
          {"waiting", report.roster.waiting || report.roster.number == 0},
          {"reason", report.standing},
          {"finished", report.finished},
          {"ended", report.ended},
          {"workers", std::move(workers)},
          {"parameter_servers", servers_json(servers, report.servers)},
          {"events", std::move(events)}};
}

}  // namespace muster::cli
