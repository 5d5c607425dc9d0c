#include "muster/train/state/counters.h"

#include <cstring>
#include <string>

namespace muster::train {
namespace {

using ckpt::DType;

constexpr CounterField kFields[] = {
    {"step", offsetof(Counters, step), DType::I64},
    {"samples", offsetof(Counters, samples), DType::U64},
    {"skipped", offsetof(Counters, skipped), DType::U64},
    {"ledger", offsetof(Counters, ledger), DType::U64},
    {"redo.attempt", offsetof(Counters, redo.attempt), DType::I64},
    {"redo.overflowed", offsetof(Counters, redo.overflowed), DType::I64},
    {"redone", offsetof(Counters, redone), DType::U64},
    {"fewest_gradient_bits", offsetof(Counters, fewest_gradient_bits), DType::I64},
    {"last.loss", offsetof(Counters, last.loss), DType::F64},
    {"last.lr", offsetof(Counters, last.lr), DType::F64},
    {"last.gradient_norm", offsetof(Counters, last.gradient_norm), DType::F64},
    {"last.samples", offsetof(Counters, last.samples), DType::U64},
    {"last.steps", offsetof(Counters, last.steps), DType::I64},
    {"last.redone", offsetof(Counters, last.redone), DType::I64},
    {"last.skipped", offsetof(Counters, last.skipped), DType::I64},
    {"last.gradient_bits", offsetof(Counters, last.gradient_bits), DType::I64},
    {"evaluation.step", offsetof(Counters, evaluation.step), DType::I64},
    {"evaluation.values", offsetof(Counters, evaluation.values), DType::F64, kMostMetrics},
    {"best.value", offsetof(Counters, best.value), DType::F64},
    {"best.step", offsetof(Counters, best.step), DType::I64},
    {"best.stale", offsetof(Counters, best.stale), DType::I64},
    {"era", offsetof(Counters, era), DType::U64},
    {"replaced.samples", offsetof(Counters, replaced.samples), DType::U64},
    {"replaced.attempts", offsetof(Counters, replaced.attempts), DType::I64},
    {"replaced.count", offsetof(Counters, replaced.count), DType::U64},
    {"replaced.blocks", offsetof(Counters, replaced.blocks), DType::U64, kMostReplaced},
};

// None is missing, and none overlaps another.
constexpr bool cover_all() {
  size_t at = 0;
  for (const auto& field : kFields) {
    if (field.offset != at) return false;
    at += field.bytes();
  }
  return at == sizeof(Counters);
}
static_assert(cover_all());

// The struct whose bytes were in checkpoints of format 1.
struct CountersOfFormat1 {
  int64_t step, attempt, redoing;
  uint64_t samples, redone, skipped;
  double best;
  int64_t best_step, stale_evals, eval_step;
  std::array<double, 16> eval;
  uint64_t ledger;
  double last_loss, last_lr, last_gradient_norm;
  uint64_t last_samples;
  int64_t last_redone, last_skipped, last_gradient_bits, fewest_gradient_bits;
};
static_assert(sizeof(CountersOfFormat1) == 280);

Counters from_format_1(std::span<const std::byte> bytes) {
  CountersOfFormat1 old;
  std::memcpy(&old, bytes.data(), sizeof(old));
  Counters counters;
  counters.step = old.step;
  counters.samples = old.samples;
  counters.skipped = old.skipped;
  counters.ledger = old.ledger;
  counters.redo = {old.attempt, old.redoing};
  counters.redone = old.redone;
  counters.fewest_gradient_bits = old.fewest_gradient_bits;
  counters.last = {.loss = old.last_loss,
                   .lr = old.last_lr,
                   .gradient_norm = old.last_gradient_norm,
                   .samples = old.last_samples,
                   .steps = 1,
                   .redone = old.last_redone,
                   .skipped = old.last_skipped,
                   .gradient_bits = old.last_gradient_bits};
  counters.evaluation = {old.eval_step, old.eval};
  counters.best = {old.best, old.best_step, old.stale_evals};
  return counters;
}

}  // namespace

std::span<const CounterField> counter_fields() { return kFields; }

Result<Counters> read_counters(const ckpt::SafetensorsFile& state) {
  if (const auto* bytes = state.find("counters"); bytes != nullptr) {
    if (bytes->data.size() == sizeof(CountersOfFormat1)) return from_format_1(bytes->data);
    return Error(ErrorKind::kCheckpoint, "the checkpoint's counters are of an unknown version");
  }
  Counters counters;
  for (const auto& field : kFields) {
    const auto* stored = state.find("counters/" + std::string(field.name));
    // What is computed next follows from those before `redone`, and from `replaced`, which older
    // checkpoints do not have.
    const bool required = field.offset < offsetof(Counters, redone);
    if (stored == nullptr && !required) continue;
    if (stored == nullptr || stored->dtype != field.type || stored->data.size() != field.bytes()) {
      return Error(ErrorKind::kCheckpoint,
                   "the checkpoint's training state has no fitting 'counters/{}'", field.name);
    }
    std::memcpy(reinterpret_cast<std::byte*>(&counters) + field.offset, stored->data.data(),
                field.bytes());
  }
  if (counters.replaced.count > kMostReplaced) {
    return Error(ErrorKind::kCheckpoint,
                 "the checkpoint's training state has {} replaced blocks, more than there can be",
                 counters.replaced.count);
  }
  return counters;
}

}  // namespace muster::train
