#include "muster/train/state/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include <fmt/ranges.h>

#include "muster/base/check.h"

namespace muster::train {
namespace {

constexpr size_t kLine = 64;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

std::vector<size_t> sizes_of(const std::vector<TensorSpec>& tensors) {
  std::vector<size_t> sizes;
  sizes.reserve(tensors.size());
  for (const auto& tensor : tensors) sizes.push_back(tensor.size());
  return sizes;
}

std::vector<bool> frozen_of(const std::vector<TensorSpec>& tensors) {
  std::vector<bool> frozen;
  frozen.reserve(tensors.size());
  for (const auto& tensor : tensors) frozen.push_back(tensor.info.role == optim::Role::kFrozen);
  return frozen;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

// PyTorch's BatchNorm also stores how many batches it has seen and refuses a checkpoint without it.
// Here that is the step, for every layer; it is written for Python and ignored when read.
constexpr std::string_view kRunningMean = "running_mean";
constexpr std::string_view kBatchCount = "num_batches_tracked";

}  // namespace

size_t TensorSpec::size() const {
  size_t n = 1;
  for (const int64_t d : shape) n *= static_cast<size_t>(d);
  return n;
}

Arena::Arena(std::vector<TensorSpec> tensors, std::vector<std::string> state_names, Memory& memory)
    : tensors_(std::move(tensors)),
      state_names_(std::move(state_names)),
      layout_(sizes_of(tensors_), frozen_of(tensors_)) {
  const size_t floats = state_begin(optimizer_states()) * sizeof(float);
  const size_t counters_at = round_up(floats + layout_.blocks().size(), kLine);
  memory_ = memory.allocate(round_up(counters_at + sizeof(Counters), kLine), BufferUse::kState);
  counters_ = new (memory_.data() + counters_at) Counters;
  seal_counters();
}

std::span<uint8_t> Arena::exponents() {
  auto* first = reinterpret_cast<uint8_t*>(floats(state_begin(optimizer_states())));
  return {first, layout_.blocks().size()};
}

std::span<float> Arena::tensor(size_t t) {
  return weights().subspan(layout_.tensor_begin(t), layout_.tensor_size(t));
}

const TensorSpec* Arena::find(const std::string& name, size_t* index) const {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].info.name != name) continue;
    if (index != nullptr) *index = t;
    return &tensors_[t];
  }
  return nullptr;
}

size_t Arena::first_statistic() const {
  const auto is_statistic = [](const TensorSpec& t) {
    return t.info.role == optim::Role::kStatistic;
  };
  return static_cast<size_t>(std::ranges::find_if(tensors_, is_statistic) - tensors_.begin());
}

size_t Arena::statistics_begin() const {
  const size_t first = layout_.first_block(first_statistic());
  return first < layout_.blocks().size() ? layout_.blocks()[first].begin : layout_.block_elements();
}

Hash128 Arena::weights_hash() const {
  Hasher hasher;
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const auto& name = tensors_[t].info.name;
    hasher.add(name.c_str(), name.size() + 1);
    hasher.add(tensors_[t].shape.data(), tensors_[t].shape.size() * sizeof(int64_t));
    hasher.add(std::as_bytes(weights().subspan(layout_.tensor_begin(t), layout_.tensor_size(t))));
  }
  return hasher.finish();
}

void Arena::seal_counters() { seal_ = hash64(counters_, sizeof(Counters)); }

bool Arena::counters_are_sealed() const { return seal_ == hash64(counters_, sizeof(Counters)); }

std::pair<size_t, size_t> Arena::part(int64_t part, int64_t parts) const {
  const size_t all = state_begin(optimizer_states());
  const auto count = static_cast<size_t>(parts);
  const auto which = static_cast<size_t>(part);
  const size_t first = all / count * which + std::min(which, all % count);
  return {first, all / count + (which < all % count ? 1 : 0)};
}

uint64_t Arena::part_hash(int64_t part, int64_t parts) const {
  const auto [first, size] = this->part(part, parts);
  const uint64_t floats = hash64(bytes().data() + first * sizeof(float), size * sizeof(float));
  const size_t rest =
      state_begin(optimizer_states()) * sizeof(float);  // exponents and counters follow
  return hash64(bytes().data() + rest, memory_.size() - rest, floats);
}

std::string Arena::part_name(int64_t part, int64_t parts) const {
  const size_t first = this->part(part, parts).first;
  std::string what = "weights";
  size_t at = first;
  for (size_t s = 0; s < optimizer_states() && first >= state_begin(s); ++s) {
    what = state_names_[s];
    at = first - state_begin(s);
  }
  std::string name;
  for (size_t t = 0; t < tensors_.size() && layout_.tensor_begin(t) <= at; ++t) {
    name = tensors_[t].info.name;
  }
  return fmt::format("{} of '{}'", what, name);
}

std::vector<ckpt::TensorView> Arena::model_views(std::span<const std::byte> bytes) const {
  MUSTER_CHECK(bytes.size() == memory_.size(), "not a copy of this arena");
  std::vector<ckpt::TensorView> views;
  const auto* counters =
      bytes.data() + (reinterpret_cast<const std::byte*>(counters_) - memory_.data());
  const std::span<const std::byte> step = {counters + offsetof(Counters, step), sizeof(int64_t)};
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const auto& spec = tensors_[t];
    views.push_back({spec.info.name, ckpt::DType::F32, spec.shape,
                     bytes.subspan(layout_.tensor_begin(t) * sizeof(float),
                                   layout_.tensor_size(t) * sizeof(float))});
    if (spec.info.role == optim::Role::kStatistic && spec.info.name.ends_with(kRunningMean)) {
      auto prefix = spec.info.name.substr(0, spec.info.name.size() - kRunningMean.size());
      views.push_back({prefix + std::string(kBatchCount), ckpt::DType::I64, {}, step});
    }
  }
  return views;
}

std::vector<ckpt::TensorView> Arena::state_views(std::span<const std::byte> bytes) const {
  MUSTER_CHECK(bytes.size() == memory_.size(), "not a copy of this arena");
  std::vector<ckpt::TensorView> views;
  for (size_t s = 0; s < optimizer_states(); ++s) {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (tensors_[t].info.role == optim::Role::kFrozen) continue;
      views.push_back({state_names_[s] + "/" + tensors_[t].info.name, ckpt::DType::F32,
                       tensors_[t].shape,
                       bytes.subspan((state_begin(s) + layout_.tensor_begin(t)) * sizeof(float),
                                     layout_.tensor_size(t) * sizeof(float))});
    }
  }
  const auto blocks = static_cast<int64_t>(layout_.blocks().size());
  views.push_back(
      {"exponents",
       ckpt::DType::U8,
       {blocks},
       bytes.subspan(state_begin(optimizer_states()) * sizeof(float), layout_.blocks().size())});
  const auto counters =
      static_cast<size_t>(reinterpret_cast<const std::byte*>(counters_) - memory_.data());
  for (const auto& field : counter_fields()) {
    std::vector<int64_t> shape;
    if (field.count > 1) shape.push_back(static_cast<int64_t>(field.count));
    views.push_back({fmt::format("counters/{}", field.name), field.type, std::move(shape),
                     bytes.subspan(counters + field.offset, field.bytes())});
  }
  return views;
}

Status Arena::load_model(const ckpt::SafetensorsFile& file) {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const auto& spec = tensors_[t];
    const auto* stored = file.find(spec.info.name);
    if (stored == nullptr) {
      return Error(ErrorKind::kCheckpoint,
                   "the checkpoint has no tensor '{}': it is of another model than the job's",
                   spec.info.name);
    }
    if (stored->dtype != ckpt::DType::F32 || stored->shape != spec.shape) {
      return Error(ErrorKind::kCheckpoint,
                   "the checkpoint's '{}' is {}, the job's model needs {}: it is of another model",
                   spec.info.name, shape_text(stored->shape), shape_text(spec.shape));
    }
  }
  load_matching(file);
  return {};
}

size_t Arena::load_matching(const ckpt::SafetensorsFile& file) {
  size_t loaded = 0;
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const auto* stored = file.find(tensors_[t].info.name);
    if (stored == nullptr || stored->dtype != ckpt::DType::F32 ||
        stored->shape != tensors_[t].shape) {
      continue;
    }
    std::memcpy(tensor(t).data(), stored->data.data(), stored->data.size());
    ++loaded;
  }
  return loaded;
}

Status Arena::load_state(const ckpt::SafetensorsFile& file) {
  MUSTER_TRY(const auto counters, read_counters(file));
  // The views say where each stored tensor belongs in our own bytes.
  for (const auto& view : state_views(this->bytes())) {
    if (view.name.starts_with("counters/")) continue;
    const auto* stored = file.find(view.name);
    if (stored == nullptr || stored->dtype != view.dtype || stored->shape != view.shape) {
      return Error(
          ErrorKind::kCheckpoint,
          "the checkpoint's training state has no fitting '{}': the job's model or optimizer "
          "has changed since; to start from its weights alone, use model.init_from",
          view.name);
    }
    auto* place = memory_.data() + (view.data.data() - memory_.data());
    std::memcpy(place, stored->data.data(), stored->data.size());
  }
  *counters_ = counters;
  seal_counters();
  return {};
}

}  // namespace muster::train
