// Small jobs for tests: a data set made of numbers, and jobs written as YAML in the test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/config/load.h"
#include "muster/model/layers.h"
#include "muster/track/temp_directory_testing.h"
#include "muster/train/session.h"

namespace muster::train {

// `size` points in four dimensions; the class says which of two is larger. Sample `args.poison` (if
// given) holds a NaN; the values of sample `args.spike` are 2^30 times as large.
class PointsDataset final : public data::Dataset {
 public:
  PointsDataset(uint64_t size, uint64_t poison, uint64_t spike)
      : size_(size), poison_(poison), spike_(spike) {
    schema_.input_shape = {4};
    schema_.classes = 2;
  }
  const data::Schema& schema() const override { return schema_; }
  uint64_t size() const override { return size_; }
  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    RandomStream random(99, Purpose::kUser, index);
    auto* x = reinterpret_cast<float*>(input);
    for (int i = 0; i < 4; ++i) x[i] = random.normal();
    *reinterpret_cast<int64_t*>(target) = x[0] > x[1] ? 1 : 0;
    if (index == poison_) x[2] = std::numeric_limits<float>::quiet_NaN();
    if (index == spike_) std::for_each(x, x + 4, [](float& value) { value *= 0x1p30f; });
  }

 private:
  data::Schema schema_;
  uint64_t size_;
  uint64_t poison_;
  uint64_t spike_;
};

// An embedding and a head that share one weight, as language models do. The head is a Linear large
// enough to stream its gradient: some 60 characters of 8,192 numbers each.
class TiedNet final : public model::Net {
 public:
  explicit TiedNet(int64_t characters)
      : head_(register_module("head", std::make_shared<model::Linear>(model::LinearOptions{
                                          .in = 8192, .out = characters, .bias = false}))) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    return head_->forward(torch::embedding(head_->weight(), input).tanh());
  }

 private:
  std::shared_ptr<model::Linear> head_;
};

// The built-in registries, the format "points" (args: size, poison, spike), the model "tied", and
// the loss "endless", which is infinite although its gradients are finite.
inline const Registries& testing_registries() {
  static const Registries registries = [] {
    Registries made;
    made.data.add(
        "points",
        [](const config::SourceOptions& options) -> Result<std::unique_ptr<data::Dataset>> {
          config::ArgReader args(options.args, "points");
          MUSTER_TRY(const auto size, args.get_int("size", 200));
          MUSTER_TRY(const auto poison, args.get_int("poison", -1));
          MUSTER_TRY(const auto spike, args.get_int("spike", -1));
          MUSTER_RETURN_IF_ERROR(args.finish());
          return std::unique_ptr<data::Dataset>(std::make_unique<PointsDataset>(
              static_cast<uint64_t>(size), static_cast<uint64_t>(poison),
              static_cast<uint64_t>(spike)));
        });
    made.models.add_model("tied", [](const config::Node&, const data::Schema& schema,
                                     const std::shared_ptr<model::LaneContext>&) {
      return Result<std::shared_ptr<model::Net>>(std::make_shared<TiedNet>(schema.classes));
    });
    made.models.add_loss("endless",
                         [](const torch::Tensor& output, const torch::Tensor&) {
                           return output.sum() + std::numeric_limits<float>::infinity();
                         },
                         {});
    return made;
  }();
  return registries;
}

// Files of the format libsvm, which are removed when the program ends.
struct BagFiles {
  track::TempDirectory directory;
  std::string values = directory.path() + "/values.libsvm";  // up to six ids with values
  std::string ids = directory.path() + "/ids.libsvm";        // the same ids, alone
};

inline const BagFiles& bag_files() {
  static const BagFiles files{};
  static const bool written = [] {
    std::ofstream values(files.values);
    std::ofstream ids(files.ids);
    for (int i = 0; i < 300; ++i) {
      const int label = i * 7 % 3 == 0 ? 1 : 0;
      values << label;
      ids << label;
      for (int k = 0; k < i % 7; ++k) {
        const int id = (i * 31 + k * 17) % 50;
        ids << fmt::format(" {}", id);
        values << fmt::format(" {}:{}", id, ((i * 13 + k * 5) % 41 - 20) / 8.0);
      }
      values << "\n";
      ids << "\n";
    }
    return values.good() && ids.good();
  }();
  EXPECT_TRUE(written);
  return files;
}

// `text` with the path of one of these files in the place of VALUES or IDS.
inline std::string with_bags(std::string text) {
  if (const auto values = text.find("VALUES"); values != std::string::npos) {
    return text.replace(values, 6, bag_files().values);
  }
  if (const auto ids = text.find("IDS"); ids != std::string::npos) {
    return text.replace(ids, 3, bag_files().ids);
  }
  return text;
}

// A job given as YAML; data paths are relative to examples/data.
inline config::Job make_job(const std::string& text, const std::vector<std::string>& sets = {}) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no test changes the environment
  const char* source = std::getenv("MUSTER_SOURCE_DIR");
  config::Sources sources;
  sources.file_text = "muster: 1\n" + text;
  sources.file_name = "test.yaml";
  sources.base_dir = std::string(source == nullptr ? "." : source) + "/examples/data";
  sources.sets = sets;
  auto loaded = config::load_job(sources);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message());
  return loaded.ok() ? std::move(loaded->job) : config::Job{};
}

inline std::unique_ptr<Session> open_session(const std::string& text,
                                             const std::vector<std::string>& sets = {}) {
  auto session = Session::open(make_job(text, sets), testing_registries());
  EXPECT_TRUE(session.ok()) << (session.ok() ? "" : session.error().message());
  return session.ok() ? *std::move(session) : nullptr;
}

}  // namespace muster::train
