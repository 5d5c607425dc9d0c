// A piece of YAML that remembers where it was written.
//
// The option table (table.h) turns most of a job file into the typed Job (job.h). What only a later
// module can understand (a model's layers, the arguments of a registered data set) stays a Node, so
// that this later module can still say "job.yaml:12:9: ..." when something in it is wrong.
//
// A plain value: copy it freely. Not tied to the YAML library; no other module sees that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/result.h"

namespace muster::config {

struct Mark {
  std::string source;  // the file's name as given, or "-s", "environment"
  int line = 0;        // from 1; 0: not from a file
  int column = 0;      // from 1, in bytes
  // "job.yaml:12:9", or the source alone.
  std::string text() const;
};

class Node {
 public:
  enum class Kind { kNull, kScalar, kList, kMap };

  Node() = default;
  static Node null(Mark mark);
  // `quoted` is kept only where it matters: "7" is a string and 7 a number, but "seven" and seven
  // are the same.
  static Node scalar(std::string text, Mark mark = {}, bool quoted = false);
  static Node list(std::vector<Node> items, Mark mark = {});
  static Node map(std::vector<std::pair<std::string, Node>> entries, Mark mark = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_scalar() const { return kind_ == Kind::kScalar; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_map() const { return kind_ == Kind::kMap; }
  const Mark& mark() const { return mark_; }
  // For an entry of a map: where its key stands, which is where a wrong key is reported. Otherwise
  // the same as mark().
  Mark key_mark() const;

  // Contents; empty when the kind is another.
  const std::string& text() const { return text_; }
  const std::vector<Node>& items() const { return items_; }
  const std::vector<std::pair<std::string, Node>>& entries() const { return entries_; }
  std::vector<std::pair<std::string, Node>>& entries() { return entries_; }
  // The entry, or nullptr.
  const Node* find(std::string_view key) const;

  // An error that starts with this node's place.
  template <typename... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string place = mark_.text();
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    return Error(ErrorKind::kJob, "{}{}{}", place, place.empty() ? "" : ": ", what);
  }

  // The same for its key.
  template <typename... Args>
  Error key_error(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string place = key_mark().text();
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    return Error(ErrorKind::kJob, "{}{}{}", place, place.empty() ? "" : ": ", what);
  }

  // What is there, for an error about it: "'fast'", "'7' in quotes", "a list", "empty".
  std::string described() const;

  // The scalar as a type, or an error that says what was expected and what is there. `what` names
  // it: "lr must be a number, not 'fast'". A whole number may be written 1e5; a number is finite; a
  // string is any scalar, so that a column may be called 7.
  Result<int64_t> as_int(std::string_view what) const;
  Result<double> as_number(std::string_view what) const;
  Result<bool> as_bool(std::string_view what) const;
  Result<std::string> as_string(std::string_view what) const;
  Result<std::vector<int64_t>> as_ints(std::string_view what) const;

  // YAML text of this node, without a newline at the end; parsing it gives an equal node. A map or
  // a list is written line by line, each indented by `indent`, and what is inside it in flow style
  // ({ a: 1, b: 2 }) where that fits on its line.
  std::string to_yaml(int indent = 0) const;
  // The same on one line, however long.
  std::string to_line() const;

  // The same contents in the same order; where they were written does not matter.
  bool operator==(const Node& other) const;

  // Takes the places of `other` for all parts that are equal to what stands at the same keys there.
  void borrow_marks(const Node& other);

 private:
  // Appends the node in flow style; false, having appended part of it, past `most` characters.
  bool append_flow(std::string& out, size_t most) const;

  Kind kind_ = Kind::kNull;
  bool quoted_ = false;  // must be written in quotes to mean the same
  std::string text_;
  std::vector<Node> items_;
  std::vector<std::pair<std::string, Node>> entries_;
  Mark mark_;
  int key_line_ = 0;  // 0: not an entry of a map
  int key_column_ = 0;

  friend class TreeBuilder;
};

// Reads the keys of one map and refuses those nobody asked for, with a suggestion. The way a later
// module reads its own part of a job file:
//
//   ArgReader args(node, "the linear layer");
//   MUSTER_TRY(auto out, args.get_int("out"));              // must be there
//   MUSTER_TRY(auto bias, args.get_bool("bias", true));     // has a default
//   MUSTER_RETURN_IF_ERROR(args.finish());                  // nothing else may be there
//
// A node that is null counts as an empty map. The node must outlive the reader.
class ArgReader {
 public:
  ArgReader(const Node& map, std::string what) : map_(map), what_(std::move(what)) {}

  Result<int64_t> get_int(std::string_view key);
  Result<int64_t> get_int(std::string_view key, int64_t fallback);
  Result<double> get_number(std::string_view key);
  Result<double> get_number(std::string_view key, double fallback);
  Result<bool> get_bool(std::string_view key, bool fallback);
  Result<std::string> get_string(std::string_view key);
  Result<std::string> get_string(std::string_view key, std::string fallback);
  // The entry itself, or nullptr; counts as asked for.
  const Node* get(std::string_view key);
  Status finish();

 private:
  Result<const Node*> require(std::string_view key);
  const Node& map_;
  std::string what_;
  std::vector<std::string> asked_;
};

// What parse_yaml reads at most: a job file describes data, it does not hold it.
inline constexpr size_t kMostYamlBytes = 1 << 20;
inline constexpr int kMostYamlDepth = 64;
inline constexpr int kMostValueDepth = 32;  // of parse_value, which becomes part of something

// Parses one YAML document; empty text is a null node. Errors carry file, line and column. Besides
// what is not YAML it refuses what a job file is better without: duplicate keys, anchors, aliases
// and tags, keys that are not plain text, tabs as indentation, bytes that are not UTF-8 text,
// nesting deeper than kMostYamlDepth. Whatever the bytes, it returns.
Result<Node> parse_yaml(std::string_view text, const std::string& source);

// The same for a value on the command line or in the environment: errors and marks have `source`
// alone, for there is no file to have lines.
Result<Node> parse_value(std::string_view text, const std::string& source);

}  // namespace muster::config
