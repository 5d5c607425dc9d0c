#include "muster/model/layer_list.h"

#include <algorithm>
#include <set>

#include "muster/base/text.h"
#include "muster/model/layer_kinds.h"
#include "muster/model/shape.h"

namespace muster::model {
namespace {

// An item of the list, taken apart.
struct Item {
  std::string kind;
  config::Node options;  // a map, or null
};

Result<Item> take_apart(const config::Node& item) {
  if (item.is_scalar()) return Item{item.text(), config::Node::null(item.mark())};
  if (item.is_map() && item.entries().size() == 1) {
    const auto& [kind, options] = item.entries()[0];
    return Item{kind, options};
  }
  return item.error(
      "a layer is a name, as in '- relu', or a name with options, as in "
      "'- linear: {{ out: 10 }}'");
}

Result<LayerKind> find_kind(const config::Node& item, const std::string& name) {
  const auto kinds = layer_kinds();
  const auto found = std::ranges::find(kinds, name, &LayerKind::name);
  if (found != kinds.end()) return *found;
  if (name == "softmax") {
    return item.error(
        "there is no softmax layer: cross_entropy takes plain scores and does it "
        "itself; leave it out");
  }
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.emplace_back(kind.name);
  return item.error("there is no layer '{}'{}; there are {}", name, did_you_mean(name, names),
                    join_words(names));
}

// The child's name: the option `name`, or its number.
Result<std::string> child_name(config::ArgReader& args, size_t number,
                               const std::set<std::string>& taken) {
  const config::Node* node = args.get("name");
  if (node == nullptr) return std::to_string(number);
  MUSTER_TRY(const std::string name, node->as_string("name"));
  const bool is_number = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  if (is_number || name.find('.') != std::string::npos) {
    return node->error("name '{}' of a layer must be a word without dots", name);
  }
  if (taken.contains(name)) return node->error("two layers are called '{}'", name);
  return name;
}

// What the net must give for one sample, or nothing if the loss does not say.
std::optional<std::vector<int64_t>> wanted_output(const std::string& loss,
                                                  const data::Schema& schema) {
  if (loss == "cross_entropy") {
    std::vector<int64_t> shape = schema.target_shape;
    shape.push_back(schema.classes);
    return shape;
  }
  if (loss == "mse") {
    return schema.target_shape.empty() ? std::vector<int64_t>{1} : schema.target_shape;
  }
  return std::nullopt;
}

}  // namespace

Result<MadeSequence> make_sequence(const config::Node& layers, const Flow& in,
                                   const data::Schema& schema,
                                   const std::shared_ptr<LaneContext>& lane) {
  if (!layers.is_list() || layers.items().empty()) {
    return layers.error("layers must be a list of at least one layer");
  }
  MadeSequence made{std::make_shared<Sequence>(), in};
  std::set<std::string> taken;
  for (size_t number = 0; number < layers.items().size(); ++number) {
    const config::Node& item = layers.items()[number];
    MUSTER_TRY(const Item parts, take_apart(item));
    MUSTER_TRY(const LayerKind kind, find_kind(item, parts.kind));
    config::ArgReader args(parts.options, fmt::format("the {} layer", parts.kind));
    MUSTER_TRY(std::string name, child_name(args, number, taken));
    MUSTER_TRY(MadeLayer layer, kind.make({kind.name, item, args, made.out, schema, lane}));
    MUSTER_RETURN_IF_ERROR(args.finish());
    taken.insert(name);
    made.sequence->add(std::move(layer.layer), std::move(name));
    made.out = std::move(layer.out);
  }
  return made;
}

Result<std::shared_ptr<Net>> make_layer_list(const config::Node& layers, const std::string& loss,
                                             const data::Schema& schema,
                                             const std::shared_ptr<LaneContext>& lane) {
  const Flow in{schema.input_shape, schema.input == data::DType::kInt64, schema.has_ids};
  MUSTER_TRY(MadeSequence made, make_sequence(layers, in, schema, lane));
  const auto wanted = wanted_output(loss, schema);
  if (wanted && made.out.shape != *wanted) {
    return layers.items().back().error(
        "the last layer gives {}, but {} on this data needs {}; end with 'linear: {{ out: classes "
        "}}'",
        shape_text(made.out.shape), loss, shape_text(*wanted));
  }
  return std::shared_ptr<Net>(std::move(made.sequence));
}

}  // namespace muster::model
