#include "tools/muster/report/history.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "muster/base/stable_sort.h"
#include "muster/base/text.h"
#include "muster/launch/ending.h"

namespace muster::cli::report {
namespace {

using track::RunEvent;

// The only row of a job that has no coordinator.
constexpr const char* kAlone = "worker";
// Seconds within which the end of a process and the loss of its worker are one thing.
constexpr double kTogether = 5;
constexpr const char* kNoRecord = "ended without a record: it was killed, or the machine failed";

// Of "0-3, 6".
size_t count_lanes(const std::string& lanes) {
  size_t count = 0;
  for (const auto& part : split(lanes, ',')) {
    const auto range = trim(part);
    if (range.empty()) continue;
    const size_t dash = range.find('-');
    uint64_t first = 0;
    uint64_t last = 0;
    std::from_chars(range.data(), range.data() + range.size(), first);
    last = first;
    if (dash != range.npos) {
      std::from_chars(range.data() + dash + 1, range.data() + range.size(), last);
    }
    count += last >= first && last - first < 1'000'000 ? last - first + 1 : 1;
  }
  return count;
}

// The digits at the front of `text`, which are taken from it, without zeros in front of them.
std::string_view take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  auto number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

// "w2" before "w10".
bool comes_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const bool numbers = std::isdigit(static_cast<unsigned char>(a.front())) != 0 &&
                         std::isdigit(static_cast<unsigned char>(b.front())) != 0;
    if (numbers) {
      const auto x = take_number(a);
      const auto y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

bool is_finished(const RunEvent& end) {
  return end.fields.contains("finished") && end.fields["finished"] == true;
}

// 0: by none.
int signal_of(const RunEvent& end) {
  const auto stopped = end.fields.find("stopped_by");
  return stopped != end.fields.end() && stopped->is_number_integer() ? stopped->get<int>() : 0;
}

bool is_asked(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

class Builder {
 public:
  Builder(const std::vector<RunEvent>& events, const Around& around)
      : events_(events), around_(around) {}

  History build() {
    for (size_t i = 0; i < events_.size(); ++i) {
      const auto& event = events_[i];
      // Events begin in the middle if the file was not there before.
      if (event.kind == "start" || history_.attempts.empty()) begin(i);
      now_ = std::max(now_, event.time + moved_on_);
      if (event.kind == "roster") take_roster(event);
      if (event.kind == "gone") take_gone(event);
      if (event.kind == "exit") take_exit(event);
      if (event.kind == "server") history_.servers.push_back({now_, false, event.text});
      if (event.kind == "end") take_end(event);
    }
    if (open_) cut_off(std::numeric_limits<double>::infinity(), around_.running);
    sort_stable(history_.workers,
                [](const auto& a, const auto& b) { return comes_before(a.id, b.id); });
    return std::move(history_);
  }

 private:
  // What is known of a worker in the present attempt.
  struct Present {
    size_t index = 0;          // in history_.workers
    bool is_open = false;      // its last stretch goes on
    bool awaits_exit = false;  // it was lost, and has not joined since
  };

  void begin(size_t at) {
    const auto& event = events_[at];
    if (open_) cut_off(event.time, false);
    // A clock that was set back.
    moved_on_ =
        history_.attempts.empty() ? 0 : std::max(0.0, history_.attempts.back().end - event.time);
    now_ = event.time + moved_on_;
    Attempt attempt;
    attempt.begin = attempt.end = now_;
    attempt.started = event.time;
    if (event.kind == "start") {
      attempt.fields = event.fields;
      const auto command = event.fields.find("command");
      if (command != event.fields.end() && command->is_string()) {
        attempt.command = command->get<std::string>();
      }
      const auto workers = event.fields.find("workers");
      if (workers != event.fields.end() && workers->is_number_integer()) {
        attempt.workers = workers->get<int64_t>();
      }
    }
    history_.attempts.push_back(std::move(attempt));
    open_ = true;
    members_.clear();
    lost_.clear();
    exits_.clear();
    for (auto& [id, present] : workers_) present.awaits_exit = false;
    roster_ = 0;
    waiting_ = false;
    // Without a coordinator there are no rosters.
    alone_ = history_.attempts.back().workers == 1 && !has_rosters(at);
    if (alone_) open(kAlone, {around_.all_lanes, ""});
  }

  bool has_rosters(size_t start) const {
    for (size_t i = start + 1; i < events_.size() && events_[i].kind != "start"; ++i) {
      if (events_[i].kind == "roster") return true;
    }
    return false;
  }

  Present& find(const std::string& id) {
    const auto [at, is_new] = workers_.try_emplace(id, Present{history_.workers.size()});
    if (is_new) history_.workers.emplace_back().id = id;
    return at->second;
  }

  void open(const std::string& id, const RunEvent::Member& member) {
    auto& present = find(id);
    auto& worker = history_.workers[present.index];
    worker.host = member.host;
    if (present.is_open) {
      const auto& now = worker.stretches.back();
      if (now.lanes == member.lanes && now.waiting == waiting_) return;
      close(present, before_);
    }
    if (!present.is_open) {
      // How the process ends is no news of what was before.
      present.awaits_exit = false;
      exits_.erase(id);
    }
    present.is_open = true;
    worker.stretches.push_back({.begin = now_,
                                .end = now_,
                                .lanes = member.lanes,
                                .lane_count = count_lanes(member.lanes),
                                .first_roster = roster_,
                                .last_roster = roster_,
                                .waiting = waiting_});
  }

  // `roster`: the last in which it had these lanes.
  void close(Present& present, int64_t roster) {
    if (!present.is_open) return;
    present.is_open = false;
    auto& stretch = history_.workers[present.index].stretches.back();
    stretch.end = std::max(stretch.begin, now_);
    stretch.last_roster = roster;
  }

  // Each worker's present stretch ends, unless it has the same lanes in this roster too.
  void take_roster(const RunEvent& event) {
    ++history_.rosters;
    before_ = roster_;
    roster_ = event.roster;
    const bool all_change = event.all || waiting_ != event.waiting;
    waiting_ = event.waiting;
    track::apply_roster(event, members_);
    if (all_change) {
      for (auto& [id, present] : workers_) {
        if (!members_.contains(id)) close(present, before_);
      }
      for (const auto& [id, member] : members_) open(id, member);
    } else {
      for (const auto& id : event.removed) {
        if (!members_.contains(id)) close(find(id), before_);
      }
      for (const auto& [id, member] : event.members) open(id, member);
      // One that was replaced has the lanes that it had, so that nothing seems to have changed.
      for (const auto& id : lost_) {
        if (const auto at = members_.find(id); at != members_.end()) open(id, at->second);
      }
    }
    lost_.clear();
  }

  void take_gone(const RunEvent& event) {
    auto& present = find(event.worker);
    auto& marks = history_.workers[present.index].marks;
    mark(marks, event.cause == "left", event.text);
    const auto exit = exits_.find(event.worker);
    present.awaits_exit = exit == exits_.end();
    if (!present.awaits_exit) {
      if (now_ - exit->second.time < kTogether) explain(marks.back(), exit->second.how);
      exits_.erase(exit);
    }
    if (present.is_open) lost_.insert(event.worker);
    close(present, roster_);
  }

  // Why a member was lost: its coordinator often only knows that the connection broke, the launcher
  // how the process ended. One of the two comes shortly after the other.
  void take_exit(const RunEvent& event) {
    const auto known = workers_.find(event.worker);
    if (known == workers_.end() || !known->second.awaits_exit) {
      exits_[event.worker] = {now_, event.text};
      return;
    }
    known->second.awaits_exit = false;
    auto& marks = history_.workers[known->second.index].marks;
    if (now_ - marks.back().time < kTogether) explain(marks.back(), event.text);
  }

  // A process that was asked to end breaks its connections too.
  void explain(Mark& mark, const std::string& how) {
    if (mark.planned || mark.text.find(how) != std::string::npos) return;
    if (how == "left" || how.ends_with("(interrupted)")) {
      mark.planned = true;
      --history_.faults;
    }
    mark.text += "; its process " + how;
  }

  void mark(std::vector<Mark>& marks, bool planned, const std::string& text) {
    if (!planned) ++history_.faults;
    marks.push_back({now_, planned, text});
  }
  // Of an attempt that ended before the job did.
  std::vector<Mark>& marks_of_end() {
    return alone_ ? history_.workers[find(kAlone).index].marks : history_.launcher;
  }

  void take_end(const RunEvent& event) {
    if (!open_) return;
    history_.attempts.back().ended = true;
    if (!is_finished(event)) mark(marks_of_end(), is_asked(signal_of(event)), end_text(event));
    // Workers go on without the coordinator that they did not need to be started by.
    if (history_.attempts.back().command == "coordinator" && !is_finished(event)) return;
    close_attempt();
  }

  void close_attempt() {
    open_ = false;
    history_.attempts.back().end = now_;
    for (auto& [id, present] : workers_) close(present, roster_);
  }

  // Metrics may tell of the present attempt after its last event, up to the start of the next one.
  void cut_off(double next_start, bool goes_on) {
    const auto next = std::ranges::lower_bound(around_.times, next_start);
    if (next != around_.times.begin() && *std::prev(next) >= history_.attempts.back().started) {
      now_ = std::max(now_, *std::prev(next) + moved_on_);
    }
    // Nobody has recorded its end: it goes on, or whoever would have done so was killed.
    if (!history_.attempts.back().ended && !goes_on) mark(marks_of_end(), false, kNoRecord);
    close_attempt();
  }

  struct Exit {
    double time;
    std::string how;
  };

  const std::vector<RunEvent>& events_;
  const Around& around_;
  History history_;
  std::map<std::string, Exit> exits_;  // that no loss was explained by yet, the last of each worker
  std::map<std::string, Present> workers_;
  std::map<std::string, RunEvent::Member> members_;  // of the present roster
  std::set<std::string> lost_;                       // members since that roster
  int64_t roster_ = 0;
  int64_t before_ = 0;  // the roster before
  bool waiting_ = false;
  double now_ = 0;
  double moved_on_ = 0;  // what is added to the clock
  bool open_ = false;
  bool alone_ = false;
};

}  // namespace

std::string end_text(const RunEvent& event) {
  if (is_finished(event)) return "finished";
  if (const int signal = signal_of(event); signal != 0) {
    return fmt::format("{} by {}", is_asked(signal) ? "stopped" : "killed",
                       launch::signal_name(signal));
  }
  return event.text.empty() ? "failed" : "failed: " + event.text;
}

History history_of(const std::vector<RunEvent>& events, const Around& around) {
  return events.empty() ? History() : Builder(events, around).build();
}

}  // namespace muster::cli::report
