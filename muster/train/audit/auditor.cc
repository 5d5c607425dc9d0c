#include "muster/train/audit/auditor.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

bool is_faulty(const std::vector<int>& faulty, size_t rank) {
  return std::ranges::find(faulty, static_cast<int>(rank)) != faulty.end();
}

}  // namespace

Auditor::Auditor(const config::Job& job, const Arena& arena)
    // With float sums the same job may have other bits, and there is nothing to compare with.
    // A round is long, so all of the state is compared in each.
    : every_(job.sync.reduction != "exact"                                ? 0
             : sync::has_rounds(job.sync.strategy) && job.audit.every > 0 ? 1
                                                                          : job.audit.every),
      // Workers that round differently compute other gradients. But they get the same sums, and
      // updates are the same on all machines, so that their states are equal all the same.
      one_in_(job.sync.reduction == "exact" && job.numerics == "exact" &&
                      !sync::has_rounds(job.sync.strategy)
                  ? job.audit.lanes
                  : 0),
      arena_(arena),
      vitals_(&kNoVitals) {}

void Auditor::assign(std::vector<std::vector<int>> lanes, comm::Group* group,
                     comm::OpOptions options, std::vector<int> newcomers) {
  newcomers_ = std::move(newcomers);
  lanes_ = std::move(lanes);
  group_ = group;
  options_ = options;
  finding_.reset();
}

template <typename T>
Result<std::vector<T>> Auditor::gather(comm::Group& group, const comm::OpOptions& options,
                                       const T& mine) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  all[static_cast<size_t>(group.rank())] = mine;
  const WaitingForPeers waiting(*vitals_);
  MUSTER_RETURN_IF_ERROR(group.allgather(std::span<T>(all), options));
  return all;
}

void Auditor::begin_step(bool exact, bool last) {
  checks_.clear();
  own_lane_ = other_lane_ = -1;
  finding_.reset();
  checks_newcomers_ = false;
  const int64_t step = arena_.counters().step;
  if (group_ == nullptr || group_->size() < 2) {
    trust(step);  // there is nobody to compare with
    return;
  }
  if (!exact || one_in_ == 0) return;
  const int64_t interval = lane_check_interval(one_in_, lanes_);
  // In the last step too: nothing would notice later.
  if (step % interval != 0 && !last && newcomers_.empty()) return;
  checks_newcomers_ = !newcomers_.empty();
  checks_ = lane_checks(step, interval, lanes_);
  for (const auto& check : checks_) {
    if (check.owner == group_->rank()) own_lane_ = check.lane;
    if (check.checker == group_->rank()) other_lane_ = check.lane;
  }
}

Status Auditor::compare_lanes(uint64_t own, uint64_t other) {
  if (checks_.empty()) return {};
  MUSTER_TRY(const auto all, gather(*group_, options_, LaneHashes{own, other}));
  AuditFinding finding;
  bool compared = true;
  for (const auto& check : checks_) {
    const uint64_t owner = all[static_cast<size_t>(check.owner)].own;
    const uint64_t checker = all[static_cast<size_t>(check.checker)].other;
    if (owner == kNotCompared || checker == kNotCompared) {
      compared = false;
      continue;
    }
    if (owner != checker) finding.lanes.push_back({check, owner, checker, {}});
  }
  if (finding.lanes.empty()) {
    if (!compared) return {};
    trusted_.lanes = std::max(trusted_.lanes, arena_.counters().step);
    newcomers_.clear();
  } else {
    finding_ = std::move(finding);
  }
  return {};
}

std::optional<uint64_t> Auditor::hash_state() {
  if (every_ == 0 || group_ == nullptr || group_->size() < 2) return std::nullopt;
  const int64_t step = arena_.counters().step;
  const int64_t before = step - arena_.counters().last.steps;
  const bool follows = compared_ && (*compared_ == step || *compared_ == before);
  if (!follows) trusted_.sweep = step;
  compared_ = step;
  hash_ = arena_.part_hash(step % every_, every_);
  return hash_;
}

Status Auditor::check() const {
  if (!has_finding()) return {};
  if (own_damage()) {
    return Error(
        ErrorKind::kMachine,
        "the counters of this worker have changed by themselves: the memory of this machine "
        "is faulty; test it, then resume from the last checkpoint");
  }
  return Error(ErrorKind::kNumerics, "step {}: workers that should have the same bits differ",
               arena_.counters().step);
}

void Auditor::look_at_counters() {
  finding_.reset();
  if (arena_.counters_are_sealed()) return;
  finding_.emplace();
  finding_->own = true;
}

Status Auditor::check_not_finite() {
  if (every_ == 0 || group_ == nullptr || group_->size() < 2) return {};
  MUSTER_TRY(auto verdict, compare_states(*group_, options_));
  if (verdict) {
    finding_.emplace();
    finding_->verdict = std::move(verdict);
  }
  return {};
}

void Auditor::states_differ() { finding_.emplace(); }

int64_t Auditor::trusted() const {
  const int64_t step = arena_.counters().step;
  return trusted_.before(step, every_, one_in_ > 0);
}

int64_t Auditor::newest_trusted(const std::vector<Claim>& told, const std::vector<int>& faulty,
                                bool lanes) const {
  // Whoever has just come does not know what the others have compared. But if any of them may be
  // the faulty one, none is believed more than the others.
  std::optional<int64_t> newest;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    if (is_faulty(faulty, rank)) continue;
    const int64_t mine = told[rank].trusted.before(told[rank].step, every_, lanes);
    newest = !newest ? mine : faulty.empty() ? std::min(*newest, mine) : std::max(*newest, mine);
  }
  return newest.value_or(0);
}

Result<Verdict> Auditor::judge(const std::function<Result<uint64_t>(int lane)>& recompute) {
  if (finding_->verdict) return *finding_->verdict;
  return finding_->lanes.empty() ? judge_states() : judge_lanes(recompute);
}

Result<Verdict> Auditor::judge_states() {
  MUSTER_TRY(const auto told, gather(*group_, options_, tell(hash_)));
  std::vector<uint64_t> hashes;
  for (const auto& one : told) hashes.push_back(one.hash);
  Verdict verdict;
  verdict.faulty = minority(hashes).value_or(std::vector<int>());
  verdict.trusted = newest_trusted(told, verdict.faulty, false);
  verdict.what = fmt::format("the states of the workers differ after step {} ({})",
                             arena_.counters().step, part_text());
  return verdict;
}

Result<Verdict> Auditor::judge_lanes(const std::function<Result<uint64_t>(int lane)>& recompute) {
  Verdict verdict;
  std::vector<int> lanes;
  bool known = true;
  for (auto& evidence : finding_->lanes) {
    MUSTER_TRY(const uint64_t mine, recompute(evidence.check.lane));
    MUSTER_TRY(evidence.again, gather(*group_, options_, mine));
    const auto wrong = wrong_ranks(evidence);
    known &= wrong.has_value();
    if (wrong) verdict.faulty.insert(verdict.faulty.end(), wrong->begin(), wrong->end());
    lanes.push_back(evidence.check.lane);
  }
  std::ranges::sort(verdict.faulty);
  const auto repeated = std::ranges::unique(verdict.faulty);
  verdict.faulty.erase(repeated.begin(), repeated.end());
  if (!known) verdict.faulty.clear();
  verdict.contained = checks_newcomers_ && !verdict.faulty.empty() &&
                      std::ranges::all_of(verdict.faulty, [&](int rank) {
                        return std::ranges::find(newcomers_, rank) != newcomers_.end();
                      });
  MUSTER_TRY(const auto told, gather(*group_, options_, tell(0)));
  verdict.trusted = newest_trusted(told, verdict.faulty, true);
  verdict.what =
      fmt::format("two workers computed different gradients for lane{} {} of step {}",
                  lanes.size() == 1 ? "" : "s", fmt::join(lanes, ", "), arena_.counters().step);
  return verdict;
}

void Auditor::took_over() {
  trusted_.sweep = std::min(trusted_.sweep, arena_.counters().step);
  trusted_.state = std::min(trusted_.state, arena_.counters().step);
  trusted_.lanes = std::min(trusted_.lanes, arena_.counters().step);
}

Result<std::optional<Verdict>> Auditor::compare_states(comm::Group& group,
                                                       const comm::OpOptions& options,
                                                       const std::vector<bool>& voters) {
  if (group.size() < 2) return std::optional<Verdict>();
  vitals_->note_progress();
  const Hash128 hash = hash128(arena_.bytes());
  vitals_->note_progress();
  MUSTER_TRY(const auto told, gather(group, options, tell(hash.low ^ hash.high)));
  bool equal = true;
  std::vector<uint64_t> votes;
  std::vector<int> ranks;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    equal &= told[rank].hash == told[0].hash;
    if (!voters.empty() && !voters[rank]) continue;
    votes.push_back(told[rank].hash);
    ranks.push_back(static_cast<int>(rank));
  }
  if (std::ranges::adjacent_find(votes, std::not_equal_to<>()) == votes.end()) {
    if (votes.size() > 1) trusted_.state = std::max(trusted_.state, arena_.counters().step);
    if (equal) return std::optional<Verdict>();
    return std::optional(judge_receivers(told, votes.front()));
  }
  Verdict verdict;
  for (const int vote : minority(votes).value_or(std::vector<int>())) {
    verdict.faulty.push_back(ranks[static_cast<size_t>(vote)]);
  }
  verdict.trusted = newest_trusted(told, verdict.faulty, false);
  verdict.what =
      fmt::format("the states of the workers differ after step {}", arena_.counters().step);
  return std::optional(std::move(verdict));
}

// The voters agree, but what others received from them is something else.
Verdict Auditor::judge_receivers(const std::vector<Claim>& told, uint64_t right) const {
  Verdict verdict;
  verdict.contained = true;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].hash != right) verdict.faulty.push_back(static_cast<int>(rank));
  }
  verdict.what = fmt::format(
      "the states of the workers differ after step {}, because one was not received as it was sent",
      told.front().step);
  return verdict;
}

// Where in the state to look: the tensor at which the compared part begins.
std::string Auditor::part_text() const {
  return fmt::format("in the part of it that begins with {}, in the scales or in the counters",
                     arena_.part_name(arena_.counters().step % every_, every_));
}

}  // namespace muster::train
