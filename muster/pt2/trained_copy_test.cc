#include "muster/pt2/trained_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/pt2/pt2_testing.h"

namespace muster::pt2 {
namespace {

using testing::HasSubstr;

struct Trained {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// All parameters of the file but tied ones, and its running statistics, with values of their own.
std::vector<Trained> trained(const File& file) {
  std::vector<Trained> all;
  for (const Input& input : file.program().inputs) {
    const bool statistic = input.name.ends_with("running_mean");
    if (input.kind != Input::Kind::kParameter && !statistic) continue;
    if (input.name == "fc2.weight") continue;
    Trained one{input.name, input.weight.sizes, {}};
    one.values.resize(static_cast<size_t>(input.weight.elements()));
    std::iota(one.values.begin(), one.values.end(), static_cast<float>(all.size()) * 1000);
    all.push_back(std::move(one));
  }
  return all;
}

Result<std::string> copy_of(const File& file, const std::vector<Trained>& tensors) {
  std::vector<TrainedTensor> views;
  for (const auto& [name, shape, values] : tensors) {
    views.push_back({name, shape, std::as_bytes(std::span(values))});
  }
  FaultInjectionFileSystem files;
  auto out = files.create("copy");
  MUSTER_RETURN_IF_ERROR(write_trained_copy(**out, file, "net.pt2", views));
  MUSTER_RETURN_IF_ERROR((*out)->close());
  return files.read("copy");
}

TEST(TrainedCopy, HasTheNewWeightsAndAllElseOfTheFile) {
  const auto file = File::open(testdata("net")).value();
  const auto tensors = trained(file);
  const auto bytes = copy_of(file, tensors);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message();
  const auto copy = File::parse(bytes_of(*bytes), "copy").value();  // checks each CRC
  for (const auto& [name, shape, values] : tensors) {
    for (const Input& input : copy.program().inputs) {
      if (input.name != name) continue;
      EXPECT_EQ(std::memcmp(input.weight.data.data(), values.data(), values.size() * 4), 0) << name;
    }
  }
  // The other name of the tied weight.
  const auto weight = [&](const std::string& name) {
    for (const Input& input : copy.program().inputs) {
      if (input.name == name) return input.weight.data.data();
    }
    return static_cast<const std::byte*>(nullptr);
  };
  EXPECT_EQ(weight("fc1.weight"), weight("fc2.weight"));
  ASSERT_EQ(copy.entries().size(), file.entries().size());
  int changed = 0;
  for (size_t i = 0; i < copy.entries().size(); ++i) {
    EXPECT_EQ(copy.entries()[i].name, file.entries()[i].name);
    EXPECT_EQ(copy.entries()[i].data.size(), file.entries()[i].data.size());
    if (!std::ranges::equal(copy.entries()[i].data, file.entries()[i].data)) ++changed;
  }
  EXPECT_EQ(changed, static_cast<int>(tensors.size()));
}

// As a transposed weight has them.
TEST(TrainedCopy, FollowsStridesAndOffset) {
  std::string weights;
  for (int i = 0; i < 8; ++i) {
    const auto value = static_cast<float>(-i);
    weights.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const std::string bytes =
      zip_of({{"m/models/model.json",
               R"({"graph_module": {"graph": {"nodes": [], "tensor_values": {}}, "signature": )"
               R"({"input_specs": [{"parameter": {"arg": {"name": "x"}, "parameter_name": "w"}}], )"
               R"("output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "x"}}}}]}}, )"
               R"("schema_version": {"major": 8, "minor": 1}})"},
              {"m/data/weights/model_weights_config.json",
               R"({"config": {"w": {"path_name": "weight_0", "use_pickle": false, "tensor_meta": )"
               R"({"dtype": 7, "layout": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], )"
               R"("strides": [{"as_int": 1}, {"as_int": 2}], "storage_offset": {"as_int": 1}}}}})"},
              {"m/data/weights/weight_0", weights}});
  const auto file = File::parse(bytes_of(bytes), "m").value();
  const auto copy = copy_of(file, {{"w", {2, 3}, {1, 2, 3, 4, 5, 6}}});
  ASSERT_TRUE(copy.ok()) << copy.error().message();
  const auto parsed = File::parse(bytes_of(*copy), "copy").value();
  std::vector<float> found(8);
  std::memcpy(found.data(), parsed.entries()[2].data.data(), sizeof(float) * 8);
  EXPECT_THAT(found, testing::ElementsAre(0, 1, 4, 2, 5, 3, 6, -7));
}

TEST(TrainedCopy, RefusesOtherTensors) {
  const auto file = File::open(testdata("net")).value();
  auto tensors = trained(file);
  auto other = tensors;
  other[0].name = "other";
  EXPECT_THAT(copy_of(file, other).error().message(), HasSubstr("no parameter or buffer 'other'"));
  other = tensors;
  other[0].shape[0] += 1;
  EXPECT_THAT(copy_of(file, other).error().message(), HasSubstr("trained was float32 [3, "));
  tensors.erase(tensors.begin());
  EXPECT_THAT(copy_of(file, tensors).error().message(), HasSubstr("was not trained"));
}

}  // namespace
}  // namespace muster::pt2
