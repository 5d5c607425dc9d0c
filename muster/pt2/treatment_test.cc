#include "muster/pt2/treatment.h"

#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/pt2/numbers.h"
#include "muster/pt2/pt2_testing.h"

namespace muster::pt2 {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

File open(const std::string& name) {
  auto file = File::open(testdata(name));
  EXPECT_TRUE(file.ok()) << file.error().message();
  return *std::move(file);
}

std::vector<std::string> replaced(const std::string& name) {
  const File file = open(name);
  const auto planned = plan(file.program(), name, {});
  EXPECT_TRUE(planned.ok()) << planned.error().message();
  return describe(file.program(), *planned);
}

std::string error_of(const std::string& name) {
  const File file = open(name);
  const auto planned = plan(file.program(), name, {});
  return planned.ok() ? "no error" : planned.error().message();
}

TEST(Treatment, ReplacesWhatDrawsOrKeepsStatistics) {
  EXPECT_THAT(replaced("net"),
              ElementsAre(AllOf(HasSubstr("1 dropout (drop)"), HasSubstr("seed, step, lane")),
                          HasSubstr("1 dropout of channels (channels)"),
                          HasSubstr("1 batch normalization (norm)")));
  EXPECT_THAT(replaced("attention"), ElementsAre(HasSubstr("1 attention with dropout"),
                                                 HasSubstr("1 recurrent net with dropout (rnn)")));
  EXPECT_THAT(replaced("plain"), ElementsAre());
}

TEST(Treatment, SkipsTheCounterOfBatchNorm) {
  const File file = open("net");
  const auto planned = plan(file.program(), "net", {});
  ASSERT_TRUE(planned.ok());
  for (size_t i = 0; i < planned->nodes.size(); ++i) {
    const auto& target = file.program().nodes[i].target;
    if (target == "torch.ops.aten.add_.Tensor") {
      EXPECT_EQ(planned->nodes[i], Treatment::kSkip);
    }
    if (target == "_operator.mul") {
      EXPECT_EQ(planned->nodes[i], Treatment::kNumbers);
    }
  }
}

TEST(Treatment, RefusesWithTheLineOfTheUser) {
  EXPECT_THAT(error_of("random"), AllOf(HasSubstr("'random'"), HasSubstr("randn_like"),
                                        HasSubstr("tests/pt2/make_testdata.py, line"),
                                        HasSubstr("`return self.fc(x + torch.randn_like(x))`")));
  EXPECT_THAT(error_of("counter"),
              AllOf(HasSubstr("changes 'seen' in forward"), HasSubstr("`self.seen.add_(1)`")));
}

TEST(Treatment, RefusesAModelThatWasExportedInEvaluationMode) {
  EXPECT_THAT(error_of("evaluation"), HasSubstr("export model.train()"));
  const File file = open("evaluation");
  const auto planned = plan(file.program(), "evaluation", {.evaluation_mode = true});
  ASSERT_TRUE(planned.ok()) << planned.error().message();
  EXPECT_THAT(describe(file.program(), *planned), ElementsAre());
}

Node lstm(size_t weights, Argument layers) {
  return {.target = "torch.ops.aten.lstm.input",
          .inputs = {{"params", TensorsArg{std::vector<Slot>(weights, 0)}},
                     {"num_layers", std::move(layers)},
                     {"dropout", FloatArg{.value = 0.5}},
                     {"train", BoolArg{.value = true}}},
          .outputs = {},
          .place = {},
          .module = {}};
}

std::string error_of(const std::vector<Node>& nodes) {
  const Program program = {.torch_version = {},
                           .inputs = {},
                           .nodes = nodes,
                           .outputs = {},
                           .slots = std::vector<std::optional<TensorMeta>>(1)};
  const auto planned = plan(program, "many", {});
  return planned.ok() ? "no error" : planned.error().message();
}

TEST(Treatment, RefusesMoreDropoutsThanANetCanHave) {
  const Node node = lstm(100'000, IntArg{.value = 100'000});
  EXPECT_EQ(error_of(std::vector(10, node)), "no error");
  EXPECT_THAT(error_of(std::vector(11, node)),
              AllOf(HasSubstr("'many'"), HasSubstr("at most 1048576 are possible")));
  EXPECT_THAT(error_of({lstm(4, IntArg{.value = 5})}), HasSubstr("more layers than weights"));
  EXPECT_THAT(error_of({lstm(4, FloatArg{.value = 2})}), HasSubstr("num_layers"));
}

std::string result(const std::string& target, std::vector<Number> arguments) {
  const auto function = number_function(target);
  if (!function) return "unknown";
  const auto number = (*function)(arguments);
  if (!number.ok()) return "error";
  if (const auto* whole = std::get_if<int64_t>(&*number)) return std::to_string(*whole);
  if (const auto* truth = std::get_if<bool>(&*number)) return *truth ? "true" : "false";
  return fmt::format("{:.3f}", std::get<double>(*number));
}

TEST(Numbers, AreComputedAsPythonComputesThem) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t least = std::numeric_limits<int64_t>::min();
  const auto of = [](int64_t a, int64_t b) { return std::vector<Number>{a, b}; };
  EXPECT_EQ(result("_operator.mul", of(6, 7)), "42");
  EXPECT_EQ(result("_operator.mul", of(most, 2)), "error");
  EXPECT_EQ(result("_operator.mul", {int64_t{3}, 0.5}), "1.500");
  EXPECT_EQ(result("_operator.floordiv", of(-7, 2)), "-4");
  EXPECT_EQ(result("_operator.floordiv", of(7, -2)), "-4");
  EXPECT_EQ(result("_operator.floordiv", of(8, 2)), "4");
  EXPECT_EQ(result("_operator.floordiv", of(8, 0)), "error");
  EXPECT_EQ(result("_operator.floordiv", of(least, -1)), "error");
  EXPECT_EQ(result("_operator.mod", of(-7, 3)), "2");
  EXPECT_EQ(result("_operator.mod", of(7, -3)), "-2");
  EXPECT_EQ(result("_operator.mod", of(least, -1)), "0");
  EXPECT_EQ(result("_operator.truediv", of(1, 4)), "0.250");
  EXPECT_EQ(result("_operator.truediv", of(1, 0)), "error");
  EXPECT_EQ(result("_operator.pow", of(2, 62)), "4611686018427387904");
  EXPECT_EQ(result("_operator.pow", of(2, 63)), "error");
  EXPECT_EQ(result("_operator.pow", of(-1, most)), "-1");
  EXPECT_EQ(result("_operator.pow", of(0, 0)), "1");
  EXPECT_EQ(result("_operator.pow", of(2, -1)), "0.500");
  EXPECT_EQ(result("_operator.ge", of(2, 2)), "true");
  EXPECT_EQ(result("_operator.neg", {least}), "error");
  EXPECT_EQ(result("torch.sym_int", {-2.5}), "-2");
  EXPECT_EQ(result("torch.sym_int", {1e300}), "error");
  EXPECT_EQ(result("torch.sym_max", of(3, 9)), "9");
  EXPECT_EQ(result("torch.sym_ite", {true, int64_t{3}, int64_t{9}}), "3");
  EXPECT_EQ(result("_operator.add", {int64_t{3}}), "error");
  EXPECT_EQ(result("_operator.xor", of(1, 2)), "unknown");
}

TEST(Numbers, HaveBitsAsInPython) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t least = std::numeric_limits<int64_t>::min();
  const auto of = [](int64_t a, int64_t b) { return std::vector<Number>{a, b}; };
  EXPECT_EQ(result("_operator.and_", of(12, 6)), "4");
  EXPECT_EQ(result("_operator.or_", of(12, 6)), "14");
  EXPECT_EQ(result("_operator.and_", of(-2, 7)), "6");
  EXPECT_EQ(result("_operator.and_", {true, false}), "false");
  EXPECT_EQ(result("_operator.or_", {true, false}), "true");
  EXPECT_EQ(result("_operator.or_", {true, int64_t{2}}), "3");
  EXPECT_EQ(result("_operator.and_", {2.0, int64_t{2}}), "error");
  EXPECT_EQ(result("_operator.or_", {true}), "error");
  EXPECT_EQ(result("_operator.lshift", of(3, 4)), "48");
  EXPECT_EQ(result("_operator.lshift", of(-3, 4)), "-48");
  EXPECT_EQ(result("_operator.lshift", of(0, most)), "0");
  EXPECT_EQ(result("_operator.lshift", of(1, 62)), "4611686018427387904");
  EXPECT_EQ(result("_operator.lshift", of(1, 63)), "error");
  EXPECT_EQ(result("_operator.lshift", of(2, 62)), "error");
  EXPECT_EQ(result("_operator.lshift", of(1, -1)), "error");
  EXPECT_EQ(result("_operator.lshift", {1.0, int64_t{1}}), "error");
  EXPECT_EQ(result("_operator.rshift", of(13, 2)), "3");
  EXPECT_EQ(result("_operator.rshift", of(-13, 2)), "-4");
  EXPECT_EQ(result("_operator.rshift", of(least, most)), "-1");
  EXPECT_EQ(result("_operator.rshift", of(most, 64)), "0");
  EXPECT_EQ(result("_operator.rshift", of(1, -1)), "error");
}

}  // namespace
}  // namespace muster::pt2
