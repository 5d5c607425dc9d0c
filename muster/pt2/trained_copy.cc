#include "muster/pt2/trained_copy.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include <fmt/ranges.h>

namespace muster::pt2 {
namespace {

// Puts elements in their order to where the strides say; `at` is the place of the first.
void scatter(std::span<const std::byte> values, const Weight& weight, std::byte* at) {
  constexpr size_t kElement = sizeof(float);
  std::vector<int64_t> index(weight.sizes.size(), 0);
  for (; !values.empty(); values = values.subspan(kElement)) {
    int64_t place = 0;
    for (size_t i = 0; i < index.size(); ++i) place += index[i] * weight.strides[i];
    std::memcpy(at + place * static_cast<int64_t>(kElement), values.data(), kElement);
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < weight.sizes[i]) break;
      index[i] = 0;
    }
  }
}

class Copy {
 public:
  Copy(const File& original, const std::string& name) : original_(original), name_(name) {}

  Status put(const TrainedTensor& tensor) {
    const auto& inputs = original_.program().inputs;
    const auto found = std::ranges::find_if(inputs, [&](const Input& input) {
      return input.name == tensor.name && has_weights(input);
    });
    if (found == inputs.end()) {
      return Error(ErrorKind::kJob, "'{}' has no parameter or buffer '{}'", name_, tensor.name);
    }
    const Weight& weight = found->weight;
    if (!std::ranges::equal(weight.sizes, tensor.shape) || weight.dtype != DType::kFloat32) {
      return Error(ErrorKind::kJob, "'{}' has '{}' as {} [{}], and trained was float32 [{}]", name_,
                   tensor.name, dtype_name(weight.dtype), fmt::join(weight.sizes, ", "),
                   fmt::join(tensor.shape, ", "));
    }
    if (tensor.values.size() != static_cast<size_t>(weight.elements()) * sizeof(float)) {
      return Error(ErrorKind::kInternal, "'{}' has {} bytes", tensor.name, tensor.values.size());
    }
    given_.push_back(&weight);
    if (weight.data.empty()) return {};
    const auto original = original_.entries()[weight.entry].data;
    auto [place, is_new] = changed_.try_emplace(weight.entry);
    if (is_new) place->second.assign(original.begin(), original.end());
    scatter(tensor.values, weight, place->second.data() + (weight.data.data() - original.data()));
    return {};
  }

  Status write(WritableFile& file) const {
    for (const Input& input : original_.program().inputs) {
      if (input.kind != Input::Kind::kParameter || is_given(input.weight)) continue;
      return Error(ErrorKind::kJob, "the parameter '{}' of '{}' was not trained", input.name,
                   name_);
    }
    auto entries = original_.entries();
    for (const auto& [entry, bytes] : changed_) entries[entry].data = bytes;
    return write_zip(file, entries);
  }

 private:
  static bool has_weights(const Input& input) {
    return input.kind == Input::Kind::kParameter || input.kind == Input::Kind::kBuffer;
  }
  bool is_given(const Weight& weight) const {
    return std::ranges::any_of(
        given_, [&](const Weight* one) { return one == &weight || one->is_same(weight); });
  }

  const File& original_;
  const std::string& name_;
  std::vector<const Weight*> given_;
  std::map<size_t, std::vector<std::byte>> changed_;  // by entry
};

}  // namespace

Status write_trained_copy(WritableFile& file, const File& original, const std::string& name,
                          std::span<const TrainedTensor> tensors) {
  Copy copy(original, name);
  for (const auto& tensor : tensors) MUSTER_RETURN_IF_ERROR(copy.put(tensor));
  return copy.write(file);
}

}  // namespace muster::pt2
