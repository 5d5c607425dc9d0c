// A job in which a test lets things happen, to see what is decided.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/roster/decide.h"

namespace muster::roster {

class DecideTest : public testing::Test {
 protected:
  DecideTest() {
    options_.job = "story";
    options_.lanes = 8;
    options_.term = 5;
    state_.started = now_;
  }

  void pass(Duration time) { now_ += time; }

  WorkerState& join(const std::string& id) {
    WorkerState worker;
    worker.join.key = {id, ++incarnations_};
    worker.join.job = "story";
    worker.join.host = "host-" + id;
    worker.joined = worker.heard = worker.progressed = worker.still_until = now_;
    if (!state_.first_join) state_.first_join = now_;
    return state_.workers[id] = worker;
  }
  WorkerState& at(const std::string& id) { return state_.workers.at(id); }
  // All that live send a heartbeat.
  void beat() {
    for (auto& [id, worker] : state_.workers) {
      if (asleep_.contains(id)) continue;
      worker.heard = worker.still_until = now_;
      if (state_.current.has(worker.key())) worker.beat.known = state_.current.number;
    }
  }
  // The members form the group of the present roster.
  void form() {
    for (const Member& member : state_.current.members) {
      at(member.key.id).beat.known = state_.current.number;
      at(member.key.id).beat.group = state_.current.number;
      at(member.key.id).beat.activity = Activity::kComputing;
      at(member.key.id).progressed = now_;
    }
  }
  void fail(const std::string& id, const std::string& suspect) {
    WorkerState& worker = at(id);
    worker.beat.group = 0;
    worker.beat.broken = state_.current.number;
    worker.beat.suspect = suspect;
    worker.beat.trouble = "cannot connect to " + suspect;
    worker.broke = now_;
  }
  Decision decided() {
    Decision decision = decide(now_, state_, options_);
    carry_out(now_, decision, state_, options_);
    return decision;
  }
  std::vector<std::string> in() const {
    std::vector<std::string> ids;
    for (const Member& member : state_.current.members) ids.push_back(member.key.id);
    return ids;
  }
  // Workers 0 to n-1 train together.
  void running(int n) {
    for (int i = 0; i < n; ++i) join(std::to_string(i));
    ASSERT_TRUE(decided().roster);
    form();
  }
  // What workers (0, 1) and (1, 2) hold of an earlier coordinator.
  void hold_77() {
    state_.learning = true;
    state_.highest = state_.current.number = 77;
    for (const WorkerKey& key : {WorkerKey{"0", 1}, WorkerKey{"1", 2}}) {
      state_.current.members.emplace_back().key = key;
    }
  }
  size_t lanes_given() const {
    std::set<int32_t> lanes;
    size_t count = 0;
    for (const Member& member : state_.current.members) {
      lanes.insert(member.lanes.begin(), member.lanes.end());
      count += member.lanes.size();
    }
    EXPECT_EQ(lanes.size(), count) << "a lane was given twice";
    return count;
  }

  Moment now_{std::chrono::seconds(100)};
  Options options_;
  State state_;
  std::set<std::string> asleep_;
  uint64_t incarnations_ = 0;
};

}  // namespace muster::roster
