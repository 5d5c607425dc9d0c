#include "tools/muster/report/timeline.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "muster/base/stable_sort.h"
#include "muster/base/text.h"

#include "tools/muster/report/html.h"

namespace muster::cli::report {
namespace {

using track::RunEvent;

constexpr size_t kMostRows = 64;
constexpr size_t kMostEvents = 300;
constexpr size_t kMostFaults = 20;
// Hundredths of the width, below which things are drawn as one: stretches of a row, marks.
constexpr double kFinest = 0.2;
constexpr double kFinestMark = 0.6;

// From times to places from 0 to 100, with long pauses between attempts cut short.
class TimeAxis {
 public:
  explicit TimeAxis(const std::vector<Attempt>& attempts) {
    double active = 0;
    for (const auto& attempt : attempts) active += attempt.end - attempt.begin;
    const double pause = std::max(active * 0.02, 1e-3);
    double at = 0;
    for (size_t i = 0; i < attempts.size(); ++i) {
      if (i > 0) {
        const double gap = std::max(0.0, attempts[i].begin - attempts[i - 1].end);
        const bool is_cut = gap > pause;
        if (is_cut) cuts_.push_back({at, gap});
        at += std::min(gap, pause);
      }
      pieces_.push_back({attempts[i].begin, attempts[i].end, at});
      at += attempts[i].end - attempts[i].begin;
    }
    length_ = std::max(at, 1e-3);
  }

  double length() const { return length_; }
  double place(double time) const {
    double at = 0;
    for (const auto& piece : pieces_) {
      if (time < piece.begin) break;
      at = piece.at + std::min(time, piece.end) - piece.begin;
    }
    return std::clamp(100 * at / length_, 0.0, 100.0);
  }
  struct Cut {
    double at;  // in seconds of the axis
    double seconds;
  };
  const std::vector<Cut>& cuts() const { return cuts_; }

 private:
  struct Piece {
    double begin, end, at;
  };
  std::vector<Piece> pieces_;
  std::vector<Cut> cuts_;
  double length_ = 1;
};

double tick_step(double length) {
  for (const double step :
       {0.1,   0.2,   0.5,   1.0,   2.0,    5.0,    10.0,   15.0,    30.0,    60.0,
        120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0}) {
    if (length / step <= 5) return step;
  }
  return 86400 * std::ceil(length / 86400 / 5);
}

std::string tick_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (seconds < 60) return fmt::format("{:g} s", seconds);
  if (seconds < 3600) {
    return whole % 60 == 0 ? fmt::format("{} min", whole / 60)
                           : fmt::format("{}:{:02} min", whole / 60, whole % 60);
  }
  if (seconds < 86400) {
    return whole % 3600 == 0 ? fmt::format("{} h", whole / 3600)
                             : fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
  }
  return fmt::format("{:g} d", seconds / 86400);
}

std::string lanes_of(const Stretch& stretch) {
  std::string text = stretch.lanes.empty() ? "no lanes" : "lanes " + stretch.lanes;
  if (stretch.waiting) text += ", waiting for more workers";
  return text;
}

std::string rosters_of(int64_t first, int64_t last) {
  if (last <= 0) return "";
  return first == last ? fmt::format(", roster {}", first)
                       : fmt::format(", rosters {} to {}", first, last);
}

struct Box {
  double left, right;  // hundredths of the width
  const char* kind;
  double share;  // of the most lanes that a worker had
  std::string title, label;
};

std::string box_svg(const Box& box) {
  const double width = std::max(0.15, box.right - box.left);
  std::string svg = fmt::format(
      "<g><title>{}</title><rect class=\"{}\" x=\"{:.2f}%\" y=\"3\" width=\"{:.2f}%\" "
      "height=\"20\" fill-opacity=\"{:.2f}\"/>",
      escaped(box.title), box.kind, box.left, width, 0.3 + 0.5 * box.share);
  // Where it fits on a narrow screen too.
  if (!box.label.empty() && width > 2.8 * static_cast<double>(box.label.size()) + 1) {
    svg += fmt::format("<text x=\"{:.2f}%\" y=\"17\">{}</text>", box.left + width / 2,
                       escaped(box.label));
  }
  return svg + "</g>";
}

Box box_of(const WorkerHistory& worker, const Stretch& stretch, const TimeAxis& axis,
           size_t most_lanes) {
  const double lanes = static_cast<double>(stretch.lane_count);
  return {axis.place(stretch.begin),
          axis.place(stretch.end),
          stretch.waiting || stretch.lanes.empty() ? "idle" : "busy",
          most_lanes == 0 ? 0 : lanes / static_cast<double>(most_lanes),
          fmt::format("worker {}: {}{}, for {}", worker.id, lanes_of(stretch),
                      rosters_of(stretch.first_roster, stretch.last_roster),
                      duration_text(stretch.end - stretch.begin)),
          stretch.lanes};
}

// Of one worker, from left to right. Those that are too short to be seen are drawn with their
// neighbours.
std::string stretches_svg(const WorkerHistory& worker, const TimeAxis& axis, size_t most_lanes) {
  std::string svg;
  const std::span all(worker.stretches);
  for (size_t begin = 0; begin < all.size();) {
    Box box = box_of(worker, all[begin], axis, most_lanes);
    size_t end = begin + 1;
    for (; end < all.size() && box.right - box.left < kFinest; ++end) {
      const Box next = box_of(worker, all[end], axis, most_lanes);
      if (next.right - next.left >= kFinest || next.left - box.right >= kFinest) break;
      box.right = next.right;
      box.share = std::max(box.share, next.share);
      if (std::string_view(next.kind) == "busy") box.kind = next.kind;
    }
    if (end - begin > 1) {
      box.label.clear();
      box.title = fmt::format("worker {}: {} changes within {}{}", worker.id, end - begin,
                              duration_text(all[end - 1].end - all[begin].begin),
                              rosters_of(all[begin].first_roster, all[end - 1].last_roster));
    }
    svg += box_svg(box);
    begin = end;
  }
  return svg;
}

std::string mark_svg(double at, const std::string& title, bool fault) {
  // Paths know no percentages: an inner picture is placed, and hangs over on both sides.
  return fmt::format(
      "<svg x=\"{:.2f}%\" y=\"13\" overflow=\"visible\"><g class=\"mark {}\"><title>{}</title>"
      "<circle class=\"touch\" r=\"9\"/>{}</g></svg>",
      std::clamp(at, 0.4, 99.6), fault ? "fault" : "planned", escaped(title),
      fault ? "<path d=\"M-5 -5L5 5M5 -5L-5 5\"/>" : "<circle r=\"4\"/>");
}

// In the order of time. A fault is not hidden by what was planned.
std::string marks_svg(const std::string& who, const std::vector<Mark>& marks,
                      const TimeAxis& axis) {
  std::string svg;
  for (const bool planned : {true, false}) {
    double at = -1;
    size_t count = 0;
    std::string text;
    const auto draw = [&] {
      if (count == 0) return;
      const auto more = count == 1 ? "" : fmt::format(" (and {} more here)", count - 1);
      svg += mark_svg(at, fmt::format("{}: {}{}", who, text, more), !planned);
    };
    for (const auto& mark : marks) {
      if (mark.planned != planned) continue;
      const double place = axis.place(mark.time);
      if (count > 0 && place - at < kFinestMark) {
        ++count;
        continue;
      }
      draw();
      at = place;
      count = 1;
      text = mark.text;
    }
    draw();
  }
  return svg;
}

std::string row(const std::string& name, const std::string& hint, const std::string& inside,
                const TimeAxis& axis) {
  std::string cuts;
  for (const auto& cut : axis.cuts()) {
    cuts += fmt::format("<line class=\"cut\" x1=\"{0:.2f}%\" x2=\"{0:.2f}%\" y1=\"0\" y2=\"26\"/>",
                        100 * cut.at / axis.length());
  }
  return fmt::format(
      "<div class=\"who\" title=\"{}\">{}</div><svg class=\"track\" aria-hidden=\"true\">{}{}"
      "</svg>",
      escaped(hint), escaped(name), cuts, inside);
}

std::string axis_row(const TimeAxis& axis) {
  std::string ticks;
  const double step = tick_step(axis.length());
  const int last = static_cast<int>(axis.length() / step * (1 + 1e-9));
  for (int i = 0; i <= last; ++i) {
    const double tick = i * step;
    const double left = 100 * tick / axis.length();
    const char* lean = left > 95 ? " class=\"end\"" : left < 5 ? " class=\"start\"" : "";
    ticks += fmt::format("<span{} style=\"left:{:.2f}%\">{}</span>", lean, left, tick_text(tick));
  }
  return fmt::format("<div class=\"who\"></div><div class=\"times\" aria-hidden=\"true\">{}</div>",
                     ticks);
}

std::string label_of(const History& history) {
  return fmt::format("{} over time: {}, {}, {}. The table of events below has the same in words.",
                     counted(history.workers.size(), "worker"), counted(history.rosters, "roster"),
                     counted(history.attempts.size(), "attempt"), counted(history.faults, "fault"));
}

// Only what it changed.
std::string roster_text(const RunEvent& event) {
  constexpr size_t kMostNamed = 8;
  std::string changes;
  size_t count = 0;
  const auto add = [&](const std::string& text) {
    if (++count <= kMostNamed) changes += (changes.empty() ? "" : "; ") + text;
  };
  for (const auto& [id, member] : event.members) {
    add(fmt::format("{}: {}", id, member.lanes.empty() ? "no lanes" : "lanes " + member.lanes));
  }
  for (const auto& id : event.removed) add("without " + id);
  if (count > kMostNamed) changes += fmt::format("; and {} more changes", count - kMostNamed);
  return fmt::format("roster {}: {}{}", event.roster, event.text,
                     changes.empty() ? "" : fmt::format(" ({})", changes));
}

std::string what_of(const RunEvent& event) {
  const auto& fields = event.fields;
  if (event.kind == "start") {
    const auto workers = fields.value("workers", nlohmann::json());
    return fmt::format("{}{}",
                       fields.value("command", nlohmann::json()).is_string()
                           ? fields["command"].get<std::string>()
                           : "start",
                       workers.is_number_integer() && workers.get<int64_t>() > 0
                           ? " with " + counted(workers.get<uint64_t>(), "worker")
                           : "");
  }
  if (event.kind == "roster") return roster_text(event);
  if (event.kind == "gone") return fmt::format("worker {}: {}", event.worker, event.text);
  if (event.kind == "exit")
    return fmt::format("process of worker {}: {}", event.worker, event.text);
  if (event.kind == "server") return "parameter server " + event.text;
  if (event.kind == "end") return end_text(event);
  return event.text;
}

// A number alone does not say what it is.
std::string name_of(const WorkerHistory& worker) {
  const bool number = worker.id.find_first_not_of("0123456789") == std::string::npos;
  return number ? "worker " + worker.id : worker.id;
}

// Those of many workers that are drawn: with faults, then the others, each in their order.
std::vector<const WorkerHistory*> drawn_of(const History& history) {
  std::vector<const WorkerHistory*> drawn;
  for (const auto& worker : history.workers) drawn.push_back(&worker);
  if (drawn.size() <= kMostRows) return drawn;
  const auto is_calm = [](const WorkerHistory* worker) {
    return std::ranges::all_of(worker->marks, &Mark::planned);
  };
  sort_stable(drawn, {}, is_calm);
  drawn.resize(kMostRows);
  std::ranges::sort(drawn);  // they are in one vector: by address is in its order
  return drawn;
}

}  // namespace

std::string timeline(const History& history) {
  if (history.workers.empty()) return "";
  const TimeAxis axis(history.attempts);
  size_t most_lanes = 0;
  for (const auto& worker : history.workers) {
    for (const auto& stretch : worker.stretches) {
      most_lanes = std::max(most_lanes, stretch.lane_count);
    }
  }
  std::string html = fmt::format("<div class=\"timeline\" role=\"img\" aria-label=\"{}\">",
                                 escaped(label_of(history)));
  for (const auto* worker : drawn_of(history)) {
    html += row(
        name_of(*worker),
        worker->host.empty() ? name_of(*worker) : name_of(*worker) + " on " + worker->host,
        stretches_svg(*worker, axis, most_lanes) + marks_svg(name_of(*worker), worker->marks, axis),
        axis);
  }
  if (!history.servers.empty()) {
    auto marks = history.servers;
    for (auto& mark : marks) {
      mark.planned = mark.text.find("killed") == std::string::npos &&
                     mark.text.find("removed") == std::string::npos &&
                     mark.text.find("SIG") == std::string::npos &&
                     mark.text.find("exit code") == std::string::npos;
    }
    html += row("servers", "parameter servers", marks_svg("parameter server", marks, axis), axis);
  }
  if (!history.launcher.empty()) {
    html += row("launcher", "launcher or coordinator",
                marks_svg("launcher", history.launcher, axis), axis);
  }
  html += axis_row(axis) + "</div>";
  if (history.workers.size() > kMostRows) {
    html += fmt::format("<p class=\"note\">{} more workers are not drawn.</p>",
                        history.workers.size() - kMostRows);
  }
  std::string pauses;
  for (const auto& cut : axis.cuts()) {
    pauses += fmt::format("{}{}", pauses.empty() ? "" : ", ", duration_text(cut.seconds));
  }
  if (!pauses.empty()) {
    html += fmt::format(
        "<p class=\"note\">Dashed: the run stood still for {}, which is not drawn "
        "at full length.</p>",
        pauses);
  }
  return html;
}

std::string fault_list(const History& history) {
  struct Fault {
    double time;
    std::string text;
  };
  std::vector<Fault> faults;
  for (const auto& worker : history.workers) {
    for (const auto& mark : worker.marks) {
      if (!mark.planned) faults.push_back({mark.time, name_of(worker) + ": " + mark.text});
    }
  }
  for (const auto& mark : history.launcher) {
    if (!mark.planned) faults.push_back({mark.time, "launcher: " + mark.text});
  }
  if (faults.empty()) return "";
  sort_stable(faults, {}, &Fault::time);
  const double start = history.attempts.front().begin;
  std::string items;
  const size_t first = faults.size() - std::min(faults.size(), kMostFaults);
  for (size_t i = first; i < faults.size(); ++i) {
    items += fmt::format("<li>after {}, {}</li>\n", duration_text(faults[i].time - start),
                         escaped(faults[i].text));
  }
  const auto title = first == 0 ? "Faults:" : fmt::format("The last {} faults:", kMostFaults);
  return fmt::format("<p>{}</p><ul class=\"log\">{}</ul>\n", title, items);
}

std::string event_table(const std::vector<RunEvent>& events) {
  if (events.empty()) return "";
  const double start = events.front().time;
  const size_t first = events.size() - std::min(events.size(), kMostEvents);
  std::string rows;
  for (size_t i = first; i < events.size(); ++i) {
    const auto& event = events[i];
    rows += fmt::format(
        "<tr class=\"{}\"><td class=\"num\">{}</td><td class=\"num\">{}</td><td>{}"
        "</td></tr>",
        event.kind == "gone" && event.cause != "left" ? "fault" : "",
        duration_text(std::max(0.0, event.time - start)),
        event.step >= 0 ? with_commas(static_cast<uint64_t>(event.step)) : "",
        escaped(what_of(event)));
  }
  return fmt::format(
      "<details class=\"events\"><summary>{}{}</summary><div class=\"wide\"><table><thead><tr><th "
      "scope=\"col\">after</th><th scope=\"col\">step</th><th scope=\"col\">what "
      "happened</th></tr></thead><tbody>{}</tbody></table></div></details>",
      counted(events.size(), "event"),
      first > 0 ? fmt::format(", of which the last {} are shown", kMostEvents) : "", rows);
}

}  // namespace muster::cli::report
