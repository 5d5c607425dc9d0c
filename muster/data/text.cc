// Text for language models; see formats.h.
#include "muster/base/text.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

// The characters of a text in order, and the token of each.
struct Vocabulary {
  std::vector<std::string> characters;
  std::vector<uint32_t> token_of;  // by code point, up to the largest there is
  uint64_t length = 0;             // of the text, in characters
};

Result<Vocabulary> collect(std::string_view text, const std::string& name) {
  Vocabulary result;
  std::vector<bool> found(kNoCodePoint);
  uint32_t largest = 0;
  for (size_t at = 0; at < text.size(); ++result.length) {
    const uint32_t code = next_code_point(text, at);
    if (code == kNoCodePoint) {
      const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
      return Error(ErrorKind::kData,
                   "'{}' line {} (byte {}) is not UTF-8; convert the file, or set `unit: bytes`",
                   name, line + 1, at);
    }
    found[code] = true;
    largest = std::max(largest, code);
  }
  result.token_of.resize(largest + 1);
  for (uint32_t code = 0; code <= largest; ++code) {
    if (!found[code]) continue;
    result.token_of[code] = static_cast<uint32_t>(result.characters.size());
    result.characters.push_back(to_utf8(code));
  }
  return result;
}

// Token: uint8_t where the vocabulary allows it, which is a quarter of the memory.
template <typename Token>
class TextDataset final : public Dataset {
 public:
  TextDataset(std::vector<Token> tokens, Schema schema, uint64_t samples)
      : tokens_(std::move(tokens)),
        schema_(std::move(schema)),
        context_(schema_.input_elements()),
        samples_(samples) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return samples_; }

  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < samples_, "a sample lies within the data");
    const Token* from = tokens_.data() + index;
    auto* in = reinterpret_cast<int64_t*>(input);
    auto* out = reinterpret_cast<int64_t*>(target);
    for (size_t i = 0; i < context_; ++i) in[i] = from[i];
    for (size_t i = 0; i < context_; ++i) out[i] = from[i + 1];
  }

 private:
  // Samples overlap: together they are these tokens.
  void add_contents(Hasher& hasher) const override {
    hasher.add(tokens_.data(), (samples_ + context_) * sizeof(Token));
  }

  const std::vector<Token> tokens_;  // of the chosen part
  const Schema schema_;
  const size_t context_;
  const uint64_t samples_;
};

// The tokens that `part` leaves, and how many samples they give.
struct Cut {
  Slice tokens;
  uint64_t samples = 0;
};

Result<Cut> cut(const config::SourceOptions& options, uint64_t length, const std::string& name) {
  config::SourceOptions unlimited = options;
  unlimited.limit = 0;  // counts samples, not tokens
  MUSTER_TRY(const Slice tokens, select_samples(unlimited, length, name));
  const auto context = static_cast<uint64_t>(options.context);
  if (tokens.count <= context) {
    return Error(ErrorKind::kData,
                 "the chosen part of '{}' has {} {}, too few for one sample with `context: {}` and "
                 "the token after it; take a larger part or a smaller context",
                 name, with_commas(tokens.count), options.unit, context);
  }
  Cut result{tokens, tokens.count - context};
  if (options.limit > 0) {
    result.samples = std::min(result.samples, static_cast<uint64_t>(options.limit));
  }
  return result;
}

template <typename Token>
std::unique_ptr<Dataset> make(std::vector<Token> tokens, Schema schema, const Cut& cut) {
  return std::make_unique<TextDataset<Token>>(std::move(tokens), std::move(schema), cut.samples);
}

template <typename Token>
std::vector<Token> tokens_of(std::string_view text, const Vocabulary& vocabulary, Slice chosen) {
  std::vector<Token> tokens;
  tokens.reserve(chosen.count);
  size_t at = 0;
  for (uint64_t i = 0; i < chosen.first + chosen.count; ++i) {
    const uint32_t code = next_code_point(text, at);
    if (i >= chosen.first) tokens.push_back(static_cast<Token>(vocabulary.token_of[code]));
  }
  return tokens;
}

}  // namespace

Result<std::unique_ptr<Dataset>> read_text(ByteReader reader,
                                           const config::SourceOptions& options) {
  if (options.unit != "characters" && options.unit != "bytes") {
    return Error(ErrorKind::kJob, "`unit` is characters or bytes, not '{}'", options.unit);
  }
  if (options.context < 1) return Error(ErrorKind::kJob, "`context` must be at least 1");
  MUSTER_TRY(const std::string text, reader.read_all());
  Schema schema{.input = DType::kInt64,
                .input_shape = {options.context},
                .target = DType::kInt64,
                .target_shape = {options.context},
                .classes = 256,
                .vocabulary = {},
                .padding = {0}};
  if (options.unit == "bytes") {
    MUSTER_TRY(const Cut chosen, cut(options, text.size(), reader.name()));
    const auto first = text.begin() + static_cast<ptrdiff_t>(chosen.tokens.first);
    std::vector<uint8_t> tokens(first, first + static_cast<ptrdiff_t>(chosen.tokens.count));
    return make(std::move(tokens), std::move(schema), chosen);
  }
  MUSTER_TRY(Vocabulary vocabulary, collect(text, reader.name()));
  MUSTER_TRY(const Cut chosen, cut(options, vocabulary.length, reader.name()));
  schema.classes = static_cast<int64_t>(vocabulary.characters.size());
  schema.vocabulary = std::move(vocabulary.characters);
  if (schema.classes <= 256) {
    return make(tokens_of<uint8_t>(text, vocabulary, chosen.tokens), std::move(schema), chosen);
  }
  return make(tokens_of<uint32_t>(text, vocabulary, chosen.tokens), std::move(schema), chosen);
}

Result<std::unique_ptr<Dataset>> open_text(const config::SourceOptions& options) {
  if (options.path.empty()) return Error(ErrorKind::kJob, "the format text needs the file `path`");
  MUSTER_TRY(auto reader, ByteReader::open(options.path));
  return read_text(std::move(reader), options);
}

}  // namespace muster::data
