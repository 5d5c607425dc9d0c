#include "muster/comm/shared_plane.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace muster::comm {
namespace {

// Blocks that a member may be ahead of the slowest.
constexpr uint32_t kAhead = 4;
// Up to this much is shown whole to everybody, who adds up for himself: one wait instead of two.
constexpr size_t kWhole = 16 << 10;
// What the root of a broadcast shows in one block: no more than a block has room for.
constexpr size_t kBroadcastUnit = 256 << 10;
// Added and shown in pieces that stay in the first-level cache between the two.
constexpr size_t kPiece = 8 << 10;
// How often to look before going to sleep: a microsecond or so. No longer, because the one we wait
// for may need this very core.
constexpr int kLooks = 100;

bool reached(const SharedSegment::Counter& counter, uint32_t target) {
  return static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - target) >= 0;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Of one member's part in one block: what stays in the second-level cache with all that are in use.
size_t SharedPlane::unit_bytes(int size) {
  return std::max<size_t>(kWhole, (512 << 10) / static_cast<size_t>(size) / 64 * 64);
}

// Each block: the parts for all members, then the result.
size_t SharedPlane::data_bytes(int size) {
  return kAhead * unit_bytes(size) * (static_cast<size_t>(size) + 1);
}

SharedPlane::SharedPlane(int place, std::vector<int> members, std::unique_ptr<SharedSegment> own)
    : members_(std::move(members)),
      rank_(place),
      size_(static_cast<int>(members_.size())),
      segments_(members_.size()) {
  segments_[static_cast<size_t>(place)] = std::move(own);
}

std::unique_ptr<SharedPlane> SharedPlane::create(int rank, std::vector<int> members) {
  auto own = SharedSegment::create(data_bytes(static_cast<int>(members.size())));
  if (own == nullptr) return nullptr;
  const auto place = std::ranges::find(members, rank) - members.begin();
  return std::unique_ptr<SharedPlane>(
      new SharedPlane(static_cast<int>(place), std::move(members), std::move(own)));
}

std::string SharedPlane::address() const {
  return segments_[static_cast<size_t>(rank_)]->address();
}

bool SharedPlane::open(int rank, std::string_view address) {
  const auto place = std::ranges::find(members_, rank) - members_.begin();
  auto& segment = segments_[static_cast<size_t>(place)];
  segment = SharedSegment::open(address, data_bytes(size_));
  return segment != nullptr;
}

void SharedPlane::close() {
  closed_.store(true, std::memory_order_seq_cst);
  segment(rank_).ring();
}

void SharedPlane::note_left(int rank) {
  int nobody = kNobody;
  left_.compare_exchange_strong(nobody, rank, std::memory_order_seq_cst);
  segment(rank_).ring();
}

void SharedPlane::leave() {
  segment(rank_).header().left.value.store(1, std::memory_order_seq_cst);
  for (auto& other : segments_) {
    if (other != nullptr) other->ring();
  }
}

// One call.
class SharedPlane::Run {
 public:
  // What the call is to its operation: all of it, or only the beginning, which no member of the
  // group can have finished without this one.
  enum class Extent { kAll, kBeginning };
  Run(SharedPlane& plane, const Operation& op, std::byte* data, std::atomic<int>& waits_for,
      Extent extent, bool to_first = false)
      : p_(plane),
        op_(op),
        data_(data),
        waits_for_(waits_for),
        extent_(extent),
        results_here_(!to_first || plane.rank_ == 0),
        first_(plane.blocks_),
        parity_(plane.calls_++ % 2),
        adds_(op.kind == OpKind::kAllreduce || op.kind == OpKind::kReduceScatter),
        cell_(adds_ ? op.element : 1),
        step_(op.kind == OpKind::kBroadcast ? kBroadcastUnit : unit_bytes(plane.size_) / cell_) {
    own().header().calls[parity_] = call_of(op);
  }

  // Everybody shows everything, or nothing, as in a barrier.
  End whole(size_t bytes) {
    if (!room_to_stage(0)) return end_;
    if (bytes > 0) std::memcpy(own_block(0), data_, bytes);
    publish(own().header().staged, 1);
    if (!all(&SharedSegment::Header::staged, 1) || !compare()) return end_;
    if (bytes > 0 && results_here_) add_whole();
    publish(own().header().reduced, 1);
    publish(own().header().copied, 1);
    p_.blocks_ += 1;
    return {};
  }

  End parts() {
    size_t largest = 0;
    for (int r = 0; r < p_.size_; ++r) largest = std::max(largest, part(r).size);
    const auto blocks = static_cast<uint32_t>(std::max<size_t>(1, (largest + step_ - 1) / step_));
    for (uint32_t t = 0; t < blocks + 2; ++t) {
      if (t < blocks && !stage(t)) return end_;
      if (t >= 1 && t <= blocks && !reduce(t - 1)) return end_;
      if (t >= 2 && !copy(t - 2)) return end_;
    }
    p_.blocks_ += blocks;
    return {};
  }

 private:
  SharedSegment& own() { return p_.segment(p_.rank_); }
  int peer(int k) const { return (p_.rank_ + k) % p_.size_; }

  size_t block_bytes() const { return unit_bytes(p_.size_) * (static_cast<size_t>(p_.size_) + 1); }
  std::byte* block_of(int rank, uint32_t block) {
    return p_.segment(rank).data() + (first_ + block) % kAhead * block_bytes();
  }
  std::byte* own_block(uint32_t block) { return block_of(p_.rank_, block); }
  // Where `rank` shows its part for `reader`, and its result.
  std::byte* staged(int rank, uint32_t block, int reader) {
    return block_of(rank, block) + static_cast<size_t>(reader) * unit_bytes(p_.size_);
  }
  // A broadcast has nothing but the root's result: it begins where a block begins.
  std::byte* result(int rank, uint32_t block) {
    return op_.kind == OpKind::kBroadcast ? block_of(rank, block) : staged(rank, block, p_.size_);
  }
  // What a member adds up, or brings; in cells.
  Part part(int rank) const {
    if (op_.kind == OpKind::kBroadcast) return rank == op_.peer ? Part{0, op_.bytes()} : Part{};
    const Part elements = part_of(op_.count, rank, p_.size_);
    const size_t cells = op_.element / cell_;
    return {elements.begin * cells, elements.size * cells};
  }
  // What of that is in a block.
  Part share(int rank, uint32_t block) const {
    const Part whole = part(rank);
    const size_t begin = std::min(whole.size, block * step_);
    return {whole.begin + begin, std::min(step_, whole.size - begin)};
  }
  std::byte* at(size_t cell) { return data_ + cell * cell_; }

  void publish(SharedSegment::Counter& counter, uint32_t blocks) {
    counter.value.store(first_ + blocks, std::memory_order_release);
    for (int k = 1; k < p_.size_; ++k) p_.segment(peer(k)).ring();
  }

  bool wait(int rank, const SharedSegment::Counter& counter, uint32_t target) {
    for (int look = 0; look < kLooks; ++look) {
      if (reached(counter, target)) return true;
      pause();
    }
    waits_for_.store(p_.members_[static_cast<size_t>(rank)], std::memory_order_relaxed);
    auto& bell = own().header().bell.value;
    while (true) {
      const uint32_t seen = bell.load(std::memory_order_seq_cst);
      // In this order: the counters were final when it left.
      const bool left = p_.segment(rank).header().left.value.load(std::memory_order_acquire) != 0;
      const int anyone = p_.left_.load(std::memory_order_acquire);
      if (reached(counter, target)) return true;
      if (left) return ended({Outcome::kLeft, rank});
      if (extent_ == Extent::kBeginning && anyone != kNobody) {
        end_ = {Outcome::kLeft, anyone};
        return false;
      }
      if (p_.closed_.load(std::memory_order_seq_cst)) return ended({Outcome::kClosed, rank});
      if (std::chrono::steady_clock::now() >= op_.deadline) return ended({Outcome::kLate, rank});
      own().wait_bell(seen, op_.deadline);
    }
  }
  // All peers have done so many blocks of this call.
  bool all(SharedSegment::Counter SharedSegment::Header::* counter, uint32_t blocks) {
    for (int k = 1; k < p_.size_; ++k) {
      if (!wait(peer(k), p_.segment(peer(k)).header().*counter, first_ + blocks)) return false;
    }
    return true;
  }
  bool ended(End end) {
    end_ = end;
    end_.peer = p_.members_[static_cast<size_t>(end.peer)];
    return false;
  }
  // The memory of a block may be used once nobody needs what was there before. What was staged is
  // read before its reader's `reduced`; but the first blocks of a call are where the one before had
  // its last, and if that was a broadcast, what is there is read until its reader's `copied`.
  bool room_to_stage(uint32_t block) {
    if (!all(&SharedSegment::Header::reduced, block + 1 - kAhead)) return false;
    return block >= kAhead || all(&SharedSegment::Header::copied, block + 1 - kAhead);
  }

  bool compare() {
    for (int k = 1; k < p_.size_; ++k) {
      const Call& theirs = p_.segment(peer(k)).header().calls[parity_];
      if (!same_call(theirs, op_)) return ended({Outcome::kDisagree, peer(k), theirs});
    }
    return true;
  }

  // In the order of ranks, so that all get the same bits also of floats.
  void add_whole() {
    const auto term = [&](int rank) { return block_of(rank, 0); };
    std::memcpy(data_, term(0), op_.bytes());
    for (int r = 1; r < p_.size_; ++r) reduce_into(op_.reduction, data_, term(r), op_.count);
  }

  bool stage(uint32_t block) {
    if (!room_to_stage(block)) return false;
    for (int k = 1; adds_ && k < p_.size_; ++k) {
      const Part theirs = share(peer(k), block);
      if (theirs.size == 0) continue;
      std::memcpy(staged(p_.rank_, block, peer(k)), at(theirs.begin), theirs.size * cell_);
    }
    publish(own().header().staged, block + 1);
    return true;
  }

  bool reduce(uint32_t block) {
    if (!all(&SharedSegment::Header::staged, block + 1)) return false;
    if (block == 0 && !compare()) return false;
    if (!all(&SharedSegment::Header::copied, block + 1 - kAhead)) return false;
    const Part mine = share(p_.rank_, block);
    const size_t piece = kPiece / cell_;
    for (size_t i = 0; i < mine.size; i += piece) {
      const size_t n = std::min(piece, mine.size - i);
      for (int k = 1; adds_ && k < p_.size_; ++k) {
        reduce_into(op_.reduction, at(mine.begin + i), staged(peer(k), block, p_.rank_) + i * cell_,
                    n);
      }
      std::memcpy(result(p_.rank_, block) + i * cell_, at(mine.begin + i), n * cell_);
    }
    publish(own().header().reduced, block + 1);
    return true;
  }

  bool copy(uint32_t block) {
    const bool distribute = op_.kind != OpKind::kReduceScatter && results_here_;
    if (distribute && !all(&SharedSegment::Header::reduced, block + 1)) return false;
    for (int k = 1; distribute && k < p_.size_; ++k) {
      const Part theirs = share(peer(k), block);
      if (theirs.size == 0) continue;
      std::memcpy(at(theirs.begin), result(peer(k), block), theirs.size * cell_);
    }
    publish(own().header().copied, block + 1);
    return true;
  }

  SharedPlane& p_;
  const Operation& op_;
  std::byte* const data_;
  std::atomic<int>& waits_for_;
  const Extent extent_;
  const bool results_here_;  // this member gets what others have added up
  const uint32_t first_;     // blocks before this call
  const uint32_t parity_;    // of this call
  const bool adds_;
  const size_t cell_;  // bytes of what is cut no further: an element, or a byte if nothing is added
  const size_t step_;  // cells of a part in a block
  End end_;
};

SharedPlane::End SharedPlane::run(const Operation& op, std::byte* data,
                                  std::atomic<int>& waits_for) {
  if (op.kind == OpKind::kBarrier) return meet_again(op, waits_for);
  Run run(*this, op, data, waits_for, Run::Extent::kAll);
  const bool small = op.kind == OpKind::kAllreduce && op.bytes() <= kWhole;
  return small ? run.whole(op.bytes()) : run.parts();
}

SharedPlane::End SharedPlane::reduce_to_first(const Operation& op, std::byte* data,
                                              std::atomic<int>& waits_for) {
  Run run(*this, op, data, waits_for, Run::Extent::kBeginning, true);
  return op.bytes() <= kWhole ? run.whole(op.bytes()) : run.parts();
}

SharedPlane::End SharedPlane::meet(const Operation& op, std::atomic<int>& waits_for) {
  return Run(*this, op, nullptr, waits_for, Run::Extent::kBeginning).whole(0);
}

SharedPlane::End SharedPlane::meet_again(const Operation& op, std::atomic<int>& waits_for) {
  return Run(*this, op, nullptr, waits_for, Run::Extent::kAll).whole(0);
}

}  // namespace muster::comm
