#include "muster/config/node.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "muster/base/text.h"
#include "muster/config/scalar.h"

namespace muster::config {
namespace {

constexpr size_t kLineWidth = 100;

std::string key_text(const std::string& key) {
  // A bare null is not a key; a bare 7 or true is one like any other.
  return can_be_plain(key) && !means_null(key) ? key : quote(key);
}

}  // namespace

std::string Mark::text() const {
  return line > 0 ? fmt::format("{}:{}:{}", source, line, column) : source;
}

Node Node::null(Mark mark) {
  Node node;
  node.mark_ = std::move(mark);
  return node;
}

Node Node::scalar(std::string text, Mark mark, bool quoted) {
  Node node = null(std::move(mark));
  node.kind_ = Kind::kScalar;
  node.quoted_ = !can_be_plain(text) || means_null(text) || (quoted && means_something(text));
  node.text_ = std::move(text);
  return node;
}

Node Node::list(std::vector<Node> items, Mark mark) {
  Node node = null(std::move(mark));
  node.kind_ = Kind::kList;
  node.items_ = std::move(items);
  return node;
}

Node Node::map(std::vector<std::pair<std::string, Node>> entries, Mark mark) {
  Node node = null(std::move(mark));
  node.kind_ = Kind::kMap;
  node.entries_ = std::move(entries);
  return node;
}

Mark Node::key_mark() const {
  return key_line_ > 0 ? Mark{mark_.source, key_line_, key_column_} : mark_;
}

const Node* Node::find(std::string_view key) const {
  const auto at = std::ranges::find(entries_, key, [](const auto& entry) { return entry.first; });
  return at == entries_.end() ? nullptr : &at->second;
}

bool Node::operator==(const Node& other) const {
  return kind_ == other.kind_ && quoted_ == other.quoted_ && text_ == other.text_ &&
         items_ == other.items_ && entries_ == other.entries_;
}

void Node::borrow_marks(const Node& other) {
  if (*this == other) {
    *this = other;
    return;
  }
  if (is_map() && other.is_map()) {
    for (auto& [key, entry] : entries_) {
      if (const Node* same = other.find(key)) entry.borrow_marks(*same);
    }
  }
  // Of lists of different length nobody knows which item is which.
  if (is_list() && other.is_list() && items_.size() == other.items_.size()) {
    for (size_t i = 0; i < items_.size(); ++i) items_[i].borrow_marks(other.items_[i]);
  }
}

Result<int64_t> Node::as_int(std::string_view what) const {
  const auto value = is_scalar() && !quoted_ ? parse_int(text_) : std::nullopt;
  if (!value) return error("{} must be a whole number, not {}", what, described());
  return *value;
}

Result<double> Node::as_number(std::string_view what) const {
  const auto value = is_scalar() && !quoted_ ? parse_number(text_) : std::nullopt;
  if (!value) return error("{} must be a number, not {}", what, described());
  return *value;
}

Result<bool> Node::as_bool(std::string_view what) const {
  const auto value = is_scalar() && !quoted_ ? parse_bool(text_) : std::nullopt;
  if (!value) return error("{} must be true or false, not {}", what, described());
  return *value;
}

Result<std::string> Node::as_string(std::string_view what) const {
  if (!is_scalar()) return error("{} must be text, not {}", what, described());
  return text_;
}

Result<std::vector<int64_t>> Node::as_ints(std::string_view what) const {
  if (!is_list()) {
    return error("{} must be a list of whole numbers, not {}", what, described());
  }
  std::vector<int64_t> values;
  for (size_t i = 0; i < items_.size(); ++i) {
    MUSTER_TRY(values.emplace_back(), items_[i].as_int(fmt::format("{}[{}]", what, i)));
  }
  return values;
}

std::string Node::described() const {
  switch (kind_) {
    case Kind::kNull:
      return "empty";
    case Kind::kScalar:
      if (quoted_ && means_something(text_)) return fmt::format("'{}' in quotes", text_);
      return text_.size() > 60 ? fmt::format("'{}...'", text_.substr(0, 60))
                               : fmt::format("'{}'", text_);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

bool Node::append_flow(std::string& out, size_t most) const {
  const char* between = "";
  switch (kind_) {
    case Kind::kNull:
      out += "null";
      break;
    case Kind::kScalar:
      out += quoted_ ? quote(text_) : text_;
      break;
    case Kind::kList:
      out += '[';
      for (const auto& item : items_) {
        out += std::exchange(between, ", ");
        if (!item.append_flow(out, most)) return false;
      }
      out += ']';
      break;
    case Kind::kMap:
      out += entries_.empty() ? "{" : "{ ";
      for (const auto& [key, value] : entries_) {
        out += std::exchange(between, ", ");
        out += key_text(key) + ": ";
        if (!value.append_flow(out, most)) return false;
      }
      out += entries_.empty() ? "}" : " }";
      break;
  }
  return out.size() <= most;
}

std::string Node::to_line() const {
  std::string out;
  append_flow(out, std::string::npos);
  return out;
}

std::string Node::to_yaml(int indent) const {
  const std::string pad(static_cast<size_t>(indent), ' ');
  if (items_.empty() && entries_.empty()) return pad + to_line();
  std::string out;
  const auto add = [&](const std::string& head, const Node& value) {
    if (!out.empty()) out += '\n';
    std::string line = pad + head + ' ';
    // What has nothing inside has only this form, however long.
    const bool leaf = value.items_.empty() && value.entries_.empty();
    if (value.append_flow(line, leaf ? std::string::npos : kLineWidth)) {
      out += line;
    } else {
      out += pad + head + '\n' + value.to_yaml(indent + 2);
    }
  };
  for (const auto& item : items_) add("-", item);
  for (const auto& [key, value] : entries_) add(key_text(key) + ":", value);
  return out;
}

Result<const Node*> ArgReader::require(std::string_view key) {
  const Node* node = get(key);
  if (node != nullptr) return node;
  if (!map_.is_map() && !map_.is_null()) return map_.error("{} must be a map", what_);
  return map_.error("{} needs '{}'", what_, key);
}

const Node* ArgReader::get(std::string_view key) {
  asked_.emplace_back(key);
  return map_.find(key);
}

Result<int64_t> ArgReader::get_int(std::string_view key) {
  MUSTER_TRY(const Node* node, require(key));
  return node->as_int(key);
}

Result<int64_t> ArgReader::get_int(std::string_view key, int64_t fallback) {
  const Node* node = get(key);
  return node != nullptr ? node->as_int(key) : fallback;
}

Result<double> ArgReader::get_number(std::string_view key) {
  MUSTER_TRY(const Node* node, require(key));
  return node->as_number(key);
}

Result<double> ArgReader::get_number(std::string_view key, double fallback) {
  const Node* node = get(key);
  return node != nullptr ? node->as_number(key) : fallback;
}

Result<bool> ArgReader::get_bool(std::string_view key, bool fallback) {
  const Node* node = get(key);
  return node != nullptr ? node->as_bool(key) : fallback;
}

Result<std::string> ArgReader::get_string(std::string_view key) {
  MUSTER_TRY(const Node* node, require(key));
  return node->as_string(key);
}

Result<std::string> ArgReader::get_string(std::string_view key, std::string fallback) {
  const Node* node = get(key);
  return node != nullptr ? node->as_string(key) : std::move(fallback);
}

Status ArgReader::finish() {
  if (!map_.is_map() && !map_.is_null()) return map_.error("{} must be a map", what_);
  for (const auto& [key, value] : map_.entries()) {
    if (std::ranges::find(asked_, key) != asked_.end()) continue;
    return value.key_error("{} has no option '{}'{}", what_, key, did_you_mean(key, asked_));
  }
  return {};
}

}  // namespace muster::config
