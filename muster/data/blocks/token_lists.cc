#include "muster/data/blocks/token_lists.h"

#include <cmath>
#include <utility>

#include "muster/data/blocks/record.h"

namespace muster::data {

Result<std::optional<TokenLists>> TokenLists::make(const config::SourceOptions& options,
                                                   config::ArgReader& args) {
  const config::Node* node = args.get("tokens");
  if (node == nullptr) return std::optional<TokenLists>();
  TokenLists lists;
  MUSTER_TRY(lists.name_, node->as_string("tokens"));
  if (args.get("input") != nullptr || args.get("ids") != nullptr) {
    return node->error("of tokens, ids and input only one can be given");
  }
  if (options.target != "class") return node->error("the target of tokens is the next token");
  if (options.mean != std::vector{0.0} || options.deviation != std::vector{1.0}) {
    return node->error("tokens are not scaled: remove `mean` and `deviation`");
  }
  if (options.context < 1) return node->error("`context` must be at least 1");
  lists.context_ = options.context;
  lists.classes_ = options.classes;
  return std::optional<TokenLists>(std::move(lists));
}

void TokenLists::describe(Schema& schema) const {
  schema.input = DType::kInt64;
  schema.input_shape = {context_};
  schema.target = DType::kInt64;
  schema.target_shape = {context_};
  schema.padding = {0};
}

Status TokenLists::check(const Value& field) const {
  if (field.kind != Value::Kind::kNumbers) {
    return Error(ErrorKind::kData, "'{}' has bytes instead of numbers", name_);
  }
  const auto context = static_cast<size_t>(context_);
  if (field.numbers.size() != context + 1) {
    return Error(ErrorKind::kData,
                 "'{}' has {} tokens, but with `context: {}` a record must have {}: the next token "
                 "is the target of the last one",
                 name_, field.numbers.size(), context, context + 1);
  }
  return {};
}

Status TokenLists::read(const Value& field, std::byte* input, std::byte* target) const {
  MUSTER_RETURN_IF_ERROR(check(field));
  const auto context = static_cast<size_t>(context_);
  auto* tokens = reinterpret_cast<int64_t*>(input);
  auto* next = reinterpret_cast<int64_t*>(target);
  for (size_t i = 0; i <= context; ++i) {
    const double token = field.numbers[i];
    if (!(token >= 0 && token < static_cast<double>(classes_)) || token != std::floor(token)) {
      return Error(ErrorKind::kData,
                   "'{}' has the token {}, but tokens are whole numbers from 0 to {}; check "
                   "`classes`",
                   name_, token, classes_ - 1);
    }
    if (i < context) tokens[i] = static_cast<int64_t>(token);
    if (i > 0) next[i - 1] = static_cast<int64_t>(token);
  }
  return {};
}

}  // namespace muster::data
