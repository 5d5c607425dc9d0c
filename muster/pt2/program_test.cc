#include "muster/pt2/program.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/pt2/pt2_testing.h"
#include "muster/pt2/read_program.h"

namespace muster::pt2 {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Node* find_node(const Program& program, const std::string& target) {
  for (const Node& node : program.nodes) {
    if (node.target == "torch.ops.aten." + target || node.target == target) return &node;
  }
  return nullptr;
}

const Input* find_input(const Program& program, const std::string& name) {
  for (const Input& input : program.inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

// A model of one node, y = op(x), in which a test changes what it likes.
struct Parts {
  std::string version = R"({"major": 8, "minor": 20})";
  std::string inputs = R"({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})";
  std::string nodes = node("x", R"({"as_tensor": {"name": "y"}})");
  std::string outputs = R"({"user_output": {"arg": {"as_tensor": {"name": "y"}}}})";
  std::string config = " ";  // of the weights: none of them
  std::string weight = std::string(24, 'w');

  static std::string node(const std::string& input, const std::string& output) {
    return R"({"target": "torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": )"
           R"({"as_tensor": {"name": ")" +
           input + R"("}}}], "outputs": [)" + output + "]}";
  }

  std::string file() const {
    return zip_of(
        {{"m/models/model.json", R"({"graph_module": {"graph": {"nodes": [)" + nodes +
                                     R"(], "tensor_values": {}}, "signature": {"input_specs": [)" +
                                     inputs + R"(], "output_specs": [)" + outputs +
                                     R"(]}}, "schema_version": )" + version + "}"},
         {"m/data/weights/model_weights_config.json", R"({"config": {)" + config + "}}"},
         {"m/data/weights/weight_0", weight}});
  }
};

std::string error_of(const std::string& bytes) {
  const auto file = File::parse(bytes_of(bytes), "m.pt2");
  if (file.ok()) return "no error";
  EXPECT_EQ(file.error().kind(), ErrorKind::kJob);
  EXPECT_THAT(file.error().message(), HasSubstr("'m.pt2'"));
  return file.error().message();
}
std::string error_of(const Parts& parts) { return error_of(parts.file()); }

TEST(Pt2, ReadsWhatPyTorchWrote) {
  const auto file = File::open(testdata("net"));
  ASSERT_TRUE(file.ok()) << file.error().message();
  const Program& program = file->program();
  EXPECT_THAT(program.torch_version, HasSubstr("2."));

  const Input* weight = find_input(program, "conv.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->kind, Input::Kind::kParameter);
  EXPECT_THAT(weight->weight.sizes, ElementsAre(2, 1, 3, 3));
  EXPECT_EQ(weight->weight.data.size(), std::size_t{2} * 9 * sizeof(float));
  EXPECT_TRUE(weight->weight.is_contiguous());
  // Tied weights are one tensor under two names.
  EXPECT_EQ(find_input(program, "fc1.weight")->weight.data.data(),
            find_input(program, "fc2.weight")->weight.data.data());
  const Input* shift = find_input(program, "shift");
  EXPECT_EQ(shift->kind, Input::Kind::kBuffer);
  float first = 0;
  std::memcpy(&first, shift->weight.data.data(), sizeof(first));
  EXPECT_EQ(first, 0.125f);
  const Input* user = find_input(program, "x");
  ASSERT_NE(user, nullptr);
  const auto& meta = program.slots[static_cast<size_t>(user->slot)];
  ASSERT_TRUE(meta.has_value());
  EXPECT_THAT(meta->sizes, ElementsAre(std::nullopt, 1, 6, 6));

  const Node* mul = find_node(program, "_operator.mul");
  ASSERT_NE(mul, nullptr);
  EXPECT_NE(std::get<IntArg>(mul->inputs[0].value).slot, kNoSlot);
  EXPECT_EQ(std::get<IntArg>(mul->inputs[1].value).value, 2);
  EXPECT_EQ(mul->place.file, "tests/pt2/make_testdata.py");
  EXPECT_EQ(mul->place.code, "samples = x.shape[0] * x.shape[1]");
  const Node* dropout = find_node(program, "dropout.default");
  ASSERT_NE(dropout, nullptr);
  EXPECT_EQ(dropout->module, "drop");
  // Not the line of PyTorch's own code.
  EXPECT_THAT(dropout->place.code, HasSubstr("self.out(self.drop("));
  EXPECT_EQ(std::get<FloatArg>(*dropout->find("p")).value, 0.5);
  EXPECT_EQ(dropout->find("q"), nullptr);
  EXPECT_EQ(program.outputs.size(), 1u);
}

TEST(Pt2, ReadsWhatTheExporterAssumed) {
  const auto branch = File::open(testdata("branch"));
  ASSERT_TRUE(branch.ok()) << branch.error().message();
  const Assumptions& assumed = branch->program().assumptions;
  EXPECT_THAT(assumed.inputs, ElementsAre("x"));
  ASSERT_EQ(assumed.sizes.size(), 1U);
  EXPECT_EQ(assumed.sizes[0].range.lowest, 9);
  EXPECT_EQ(assumed.sizes[0].range.highest, SymbolRange::kMost);
  ASSERT_EQ(assumed.guards.size(), 2U);
  EXPECT_EQ(assumed.guards[1].text, "(L['x'].size()[0] % 4) == 0");
  EXPECT_TRUE(assumed.guards[1].condition);

  const auto most = File::open(testdata("most"));
  ASSERT_TRUE(most.ok()) << most.error().message();
  EXPECT_THAT(most->program().assumptions.inputs, ElementsAre("x", "target"));
  ASSERT_EQ(most->program().assumptions.sizes.size(), 2U);
  EXPECT_EQ(most->program().assumptions.sizes[1].range.lowest, 0);
  EXPECT_EQ(most->program().assumptions.sizes[1].range.highest, 6);
  // Nothing is assumed of those that most people export.
  for (const char* name : {"net", "plain", "attention"}) {
    const auto file = File::open(testdata(name));
    EXPECT_TRUE(file->program().assumptions.guards.empty()) << name;
    EXPECT_EQ(file->program().assumptions.sizes[0].range.lowest, 0) << name;
  }
}

TEST(Pt2, TheHashIsThatOfTheContents) {
  const std::string contents = Parts{}.file();
  const auto first = File::parse(bytes_of(contents), "a");
  const auto second = File::parse(bytes_of(contents), "b");
  EXPECT_EQ(first->hash(), second->hash());
  const auto third = File::open(testdata("net"));
  EXPECT_NE(first->hash(), third->hash());
}

TEST(Pt2, NamesTheInnermostLineOfTheUser) {
  const std::string trace =
      "  File \"/home/me/net.py\", line 7, in forward\n    return self.fc(x)\n"
      "  File \"/usr/lib/python3/site-packages/torch/nn/linear.py\", line 1, in forward\n    F()\n";
  EXPECT_EQ(internal::innermost_place(trace).text(),
            "/home/me/net.py, line 7: `return self.fc(x)`");
  EXPECT_EQ(internal::innermost_place("").text(), "an unknown line");
  const auto installed = internal::innermost_place("File \"/x/torch/a.py\", line 3, in f\n  g()");
  EXPECT_EQ(installed.text(), "/x/torch/a.py, line 3: `g()`");
  EXPECT_EQ(internal::innermost_place("File \"a.py\", line 3").text(), "a.py, line 3");
  EXPECT_EQ(internal::innermost_place("File \", line \nFile\nrubbish").line, 0);
}

TEST(Pt2, RefusesOtherVersions) {
  EXPECT_EQ(error_of(Parts{}), "no error");
  EXPECT_EQ(error_of(Parts{.version = R"({"major": 8, "minor": 99})"}), "no error");
  EXPECT_THAT(error_of(Parts{.version = R"({"major": 9, "minor": 0})"}),
              AllOf(HasSubstr("version 9"), HasSubstr("reads version 8")));
  EXPECT_THAT(error_of(Parts{.version = "{}"}), HasSubstr("'major' is missing"));
  EXPECT_THAT(error_of(zip_of({{"m/serialized_exported_program.json", "{}"}})),
              HasSubstr("PyTorch before 2.8"));
  EXPECT_THAT(error_of(zip_of({{"m/models/model.json", "nonsense"}})), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(zip_of({{"a/models/model.json", "{}"}, {"b/models/model.json", "{}"}})),
              HasSubstr("two models"));
}

TEST(Pt2, ChecksTheGraph) {
  EXPECT_THAT(error_of(Parts{.nodes = Parts::node("z", R"({"as_tensor": {"name": "y"}})")}),
              HasSubstr("'z' is used before it is defined"));
  EXPECT_THAT(error_of(Parts{.nodes = Parts::node("x", R"({"as_tensor": {"name": "x"}})")}),
              HasSubstr("'x' is defined twice"));
  EXPECT_THAT(error_of(Parts{.nodes = Parts::node("x", R"({"as_sym_int": {"as_name": "y"}})")}),
              HasSubstr("'y' is used as a tensor"));
  EXPECT_THAT(error_of(Parts{.outputs = R"({"user_output": {"arg": {"as_int": 1}}})"}),
              HasSubstr("it must return tensors"));
  EXPECT_THAT(error_of(Parts{.outputs = R"({"buffer_mutation": {}})"}),
              HasSubstr("without run_decompositions()"));
  EXPECT_THAT(error_of(Parts{.inputs = R"({"token": {}})"}), HasSubstr("'token'"));
  EXPECT_THAT(error_of(Parts{.inputs = R"({"user_input": {"arg": {"as_int": 1}}})"}),
              HasSubstr("all must be tensors"));
  EXPECT_THAT(error_of(Parts{.nodes = "7"}), HasSubstr("is no object"));
  EXPECT_THAT(error_of(Parts{.nodes = R"({"target": 3})"}), HasSubstr("is no text"));
}

TEST(Pt2, ChecksTheWeights) {
  const auto with = [](const std::string& meta, const std::string& more = "") {
    return Parts{
        .inputs = R"({"parameter": {"arg": {"name": "x"}, "parameter_name": "w"}})",
        .config =
            R"("w": {"path_name": "weight_0", "use_pickle": false, "tensor_meta": {"dtype": )" +
            meta + R"(, "layout": 7}})" + more};
  };
  const auto shape = [&](const std::string& sizes, const std::string& strides,
                         const std::string& offset = "0") {
    const auto list = [](const std::string& numbers) {
      std::string all;
      for (size_t at = 0; at < numbers.size();) {
        const size_t end = std::min(numbers.find(' ', at), numbers.size());
        if (!all.empty()) all += ", ";
        all += R"({"as_int": )" + numbers.substr(at, end - at) + "}";
        at = end + 1;
      }
      return "[" + all + "]";
    };
    return error_of(with(R"(7, "sizes": )" + list(sizes) + R"(, "strides": )" + list(strides) +
                         R"(, "storage_offset": {"as_int": )" + offset + "}"));
  };
  EXPECT_EQ(shape("2 3", "3 1"), "no error");
  EXPECT_EQ(shape("3 2", "1 3"), "no error");
  EXPECT_EQ(shape("2 2", "3 1", "1"), "no error");
  EXPECT_EQ(shape("0 9", "9 1"), "no error");
  EXPECT_EQ(shape("", ""), "no error");
  EXPECT_THAT(shape("0 4611686018427387904 4611686018427387904", "0 1 1"),
              HasSubstr("does not lie within"));
  EXPECT_EQ(shape("0 4611686018427387904", "1 1"), "no error");
  EXPECT_THAT(shape("7", "1"), HasSubstr("does not lie within the 24 bytes"));
  EXPECT_THAT(shape("2 3", "3 1", "1"), HasSubstr("does not lie within"));
  EXPECT_THAT(shape("2 3", "3"), HasSubstr("2 sizes and 1 strides"));
  EXPECT_THAT(shape("1000", "0"), HasSubstr("does not lie within"));
  EXPECT_THAT(shape("4611686018427387904 4", "1 1"), HasSubstr("does not lie within"));
  EXPECT_THAT(shape("2", "9223372036854775807"), HasSubstr("does not lie within"));
  EXPECT_THAT(shape("-2", "1"), HasSubstr("'sizes' has -2"));
  EXPECT_THAT(error_of(with("9")), HasSubstr("dtype 9 is not supported"));
  EXPECT_THAT(error_of(Parts{.inputs = R"({"parameter": {"arg": {"name": "x"}, )"
                                       R"("parameter_name": "w"}})"}),
              HasSubstr("tensor 'w': 'w' is missing"));
}

TEST(Pt2, DeepNestingDoesNotOverflowTheStack) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  EXPECT_NE(error_of(Parts{.nodes = deep}), "no error");
  EXPECT_EQ(error_of(Parts{.config = R"("w": )" + deep}), "no error");
  EXPECT_NE(error_of(Parts{.version = deep}), "no error");
}

}  // namespace
}  // namespace muster::pt2
