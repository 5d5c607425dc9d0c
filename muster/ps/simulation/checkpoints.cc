#include "muster/ps/simulation/checkpoints.h"

#include <utility>

namespace muster::ps::simulation {

bool Checkpoints::write(Checkpoint checkpoint) {
  const uint64_t position = checkpoint.position;
  if (position > rollback_.step && checkpoint.group <= rollback_.number) return false;
  for (auto other = all_.lower_bound(position); other != all_.end(); ++other) {
    if (other->second->group > checkpoint.group) return false;
  }
  all_[position] = std::make_shared<const Checkpoint>(std::move(checkpoint));
  return true;
}

void Checkpoints::roll_back(const roster::Rollback& rollback) {
  rollback_ = rollback;
  std::erase_if(all_, [&](const auto& one) {
    return one.first > rollback.step && one.second->group <= rollback.number;
  });
}

std::shared_ptr<const Checkpoint> Checkpoints::find(uint64_t position) const {
  const auto found = all_.find(position);
  return found == all_.end() ? nullptr : found->second;
}

void Checkpoints::begin_era(uint64_t era, const std::shared_ptr<const Checkpoint>& from) {
  begun_.emplace(era, from == nullptr ? std::vector<uint64_t>() : from->eras);
}

bool Checkpoints::note_loaded(uint64_t era) {
  return !begun_.at(era).empty() && loaded_.insert(era).second;
}

std::vector<uint64_t> Checkpoints::eras_of(uint64_t era, uint64_t position) const {
  auto eras = begun_.at(era);
  eras.resize(position, era);
  return eras;
}

}  // namespace muster::ps::simulation
