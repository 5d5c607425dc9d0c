// From bytes to Nodes. The only file that sees the YAML library: its events build the tree, its
// exceptions become errors.
#include <algorithm>
#include <exception>
#include <set>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "muster/base/text.h"
#include "muster/config/node.h"

namespace muster::config {

// Thrown through the library to stop it at once; never leaves this file.
struct Refused {
  Error error;
};

// Builds the tree from the library's events. `open_` is the path from the root to the map or list
// that is being read.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& source, bool lines) : source_(source), lines_(lines) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(Node::null(place(mark)));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "a job file has no aliases (*name); write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    add(Node::scalar(value, place(mark), tag == "!"));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::list({}, place(mark)));
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::map({}, place(mark)));
  }

  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    bool has_key = false;
    std::string key;
    Mark key_mark;
    std::set<std::string> keys;
  };

  Mark place(const YAML::Mark& mark) const {
    return lines_ ? Mark{source_, mark.line + 1, mark.column + 1} : Mark{source_, 0, 0};
  }

  [[noreturn]] void refuse(const Mark& mark, std::string_view why) const {
    throw Refused{Error(ErrorKind::kJob, "{}: {}", mark.text(), why)};
  }
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view why) const {
    refuse(place(mark), why);
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) {
      refuse(mark, "a job file has no anchors (&name); write the value out where it is used");
    }
  }

  // "?" and "!" are how the library says that there was no tag.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      refuse(mark, fmt::format("a job file has no tags ('{}'); remove it", tag));
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node node) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    const int most = lines_ ? kMostYamlDepth : kMostValueDepth;
    if (open_.size() == static_cast<size_t>(most)) {
      refuse(mark, fmt::format("lists and maps are nested more than {} deep", most));
    }
    if (!open_.empty() && open_.back().node.is_map() && !open_.back().has_key) {
      refuse(mark, "a key must be plain text, not a list or a map");
    }
    open_.emplace_back().node = std::move(node);
  }

  void close() {
    Node done = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(done));
  }

  void add(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.items_.push_back(std::move(node));
    } else if (!parent.has_key) {
      take_key(parent, node);
    } else {
      node.key_line_ = parent.key_mark.line;
      node.key_column_ = parent.key_mark.column;
      parent.node.entries_.emplace_back(std::move(parent.key), std::move(node));
      parent.has_key = false;
    }
  }

  void take_key(Open& parent, const Node& key) const {
    if (key.is_null()) refuse(key.mark(), "a key is missing in front of ':'");
    if (key.text().size() > kMostKeyBytes) refuse(key.mark(), "this key is too long");
    if (!parent.keys.insert(key.text()).second) {
      refuse(key.mark(), fmt::format("'{}' is there twice; remove one", key.text()));
    }
    parent.has_key = true;
    parent.key = key.text();
    parent.key_mark = key.mark();
  }

  static constexpr size_t kMostKeyBytes = 256;

  const std::string& source_;
  const bool lines_;  // a file, so that marks have lines and columns
  Node root_;
  std::vector<Open> open_;
};

namespace {

// What the library would misread in silence (a stray byte becomes U+FFFD, 0x04 ends the file, a
// zero byte makes it guess UTF-16) or explain badly (tabs).
Status check_text(std::string_view text, const std::string& source, bool lines) {
  Mark mark{source, 1, 1};
  const auto place = [&] { return lines ? mark.text() : source; };
  bool indenting = true;  // only blanks so far on this line
  size_t tab = 0;         // the column of the first tab among them
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t length = utf8_length(text.substr(at));
    const bool control = (c >= 0 && c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
    if (length == 0 || control) {
      return Error(ErrorKind::kJob, "{}: byte 0x{:02x} is not UTF-8 text", place(),
                   static_cast<unsigned char>(c));
    }
    if (c == '\n') {
      mark = {source, mark.line + 1, 0};
      indenting = true;
      tab = 0;
    } else if (indenting && c == '\t') {
      if (tab == 0) tab = static_cast<size_t>(mark.column);
    } else if (indenting && c != ' ' && c != '\r') {
      indenting = false;
      if (tab != 0 && c != '#') {
        mark.column = static_cast<int>(tab);
        return Error(ErrorKind::kJob, "{}: a tab cannot indent; use spaces", place());
      }
    }
    mark.column += static_cast<int>(length);
    at += length;
  }
  return {};
}

Result<Node> parse(std::string_view text, const std::string& source, bool lines) {
  if (text.size() > kMostYamlBytes) {
    return Error(ErrorKind::kJob, "{}: {} bytes are too many for a job file; at most {} are read",
                 source, text.size(), kMostYamlBytes);
  }
  MUSTER_RETURN_IF_ERROR(check_text(text, source, lines));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(source, lines);
    if (!parser.HandleNextDocument(builder)) {
      return Node::null(lines ? Mark{source, 1, 1} : Mark{source, 0, 0});
    }
    TreeBuilder second(source, lines);
    if (parser.HandleNextDocument(second)) {
      return Error(ErrorKind::kJob,
                   "{}: there is a second document in it (after '---'); a job file has one",
                   source);
    }
    return builder.take();
  } catch (Refused& refused) {
    return std::move(refused.error);
  } catch (const YAML::Exception& e) {
    const Mark mark = lines ? Mark{source, e.mark.line + 1, e.mark.column + 1} : Mark{source, 0, 0};
    return Error(ErrorKind::kJob, "{}: not valid YAML: {}", mark.text(), e.msg);
  } catch (const std::exception& e) {
    return Error(ErrorKind::kJob, "{}: not valid YAML: {}", source, e.what());
  }
}

}  // namespace

Result<Node> parse_yaml(std::string_view text, const std::string& source) {
  return parse(text, source, true);
}

Result<Node> parse_value(std::string_view text, const std::string& source) {
  return parse(text, source, false);
}

}  // namespace muster::config
