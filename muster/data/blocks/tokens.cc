// Token ids where they lie. A sample is one window of `context` tokens and its target the window
// one token later; windows begin every `stride` tokens and do not reach from one file into the
// next.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/mapped_file.h"
#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/decoding_dataset.h"
#include "muster/data/blocks/match_files.h"
#include "muster/data/blocks/token_file.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

// What is checked of each file when it is opened: enough to find that `classes` or `type` is wrong.
constexpr uint64_t kChecked = 4096;  // tokens
// The unit in which contents are hashed.
constexpr uint64_t kPiece = 64 << 10;

struct File {
  std::string path;
  MappedFile file;
  Tokens tokens;
  uint64_t first = 0;  // its first window's number
};

template <typename T>
void widen(const std::byte* from, size_t count, int64_t* to) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<int64_t>(value);
  }
}

void copy_tokens(const Tokens& tokens, uint64_t first, size_t count, int64_t* to) {
  const std::byte* from = tokens.bytes.data() + first * tokens.width;
  switch (tokens.width) {
    case 1:
      return widen<uint8_t>(from, count, to);
    case 2:
      return widen<uint16_t>(from, count, to);
    case 4:
      return widen<uint32_t>(from, count, to);
    default:
      return widen<uint64_t>(from, count, to);
  }
}

Error too_large(const std::string& path, uint64_t token, int64_t classes) {
  return Error(ErrorKind::kData,
               "'{}' has the token {}, but `classes` is {}; check `classes`, and `type` in `args`",
               path, token, classes);
}

class TokenDataset final : public DecodingDataset {
 public:
  TokenDataset(std::vector<File> files, Schema schema, uint64_t stride, Slice chosen)
      : files_(std::move(files)), schema_(std::move(schema)), stride_(stride), chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  Status try_read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const uint64_t window = chosen_.first + index;
    const auto file = std::prev(std::ranges::upper_bound(files_, window, {}, &File::first));
    const uint64_t first = (window - file->first) * stride_;
    const size_t context = schema_.input_elements();
    auto* tokens = reinterpret_cast<int64_t*>(input);
    auto* next = reinterpret_cast<int64_t*>(target);
    copy_tokens(file->tokens, first, context, tokens);
    copy_tokens(file->tokens, first + 1, context, next);
    // What is negative counts as very large.
    const auto less = [](int64_t a, int64_t b) {
      return static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
    };
    const auto largest = static_cast<uint64_t>(
        std::max(tokens[0], *std::max_element(next, next + context, less), less));
    if (largest < static_cast<uint64_t>(schema_.classes)) return {};
    return too_large(file->path, largest, schema_.classes)
        .context("tokens {} to {}", with_commas(first), with_commas(first + context));
  }

 private:
  // Samples overlap by a token at least: together they are the files' tokens. Files may have
  // terabytes, so of large ones not all are hashed.
  void add_contents(Hasher& hasher) const override {
    const uint64_t numbers[] = {stride_, chosen_.first, chosen_.count};
    hasher.add(numbers, sizeof(numbers));
    uint64_t total = 0;
    for (const auto& file : files_) total += file.tokens.bytes.size();
    const HashedPieces hashed(total);
    uint64_t number = 0;
    for (const auto& file : files_) {
      const uint64_t shape[] = {file.tokens.width, file.tokens.count()};
      hasher.add(shape, sizeof(shape));
      const auto bytes = file.tokens.bytes;
      for (uint64_t at = 0; at < bytes.size(); at += kPiece) {
        const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
        if (hashed.contains(number++)) hasher.add(piece);
      }
    }
  }

  const std::vector<File> files_;
  const Schema schema_;
  const uint64_t stride_;
  const Slice chosen_;
};

// Which kind of file it is shows in its name and in what lies beside it.
Result<Tokens> read_tokens(const std::string& path, const MappedFile& file, size_t width) {
  if (path.ends_with(".npy")) return read_npy(file.bytes());
  if (path.ends_with(".bin")) {
    const std::string beside = path.substr(0, path.size() - 3) + "idx";
    std::error_code ignored;
    if (std::filesystem::exists(beside, ignored)) {
      MUSTER_TRY(const MappedFile idx, MappedFile::open(beside));
      return read_megatron(file.bytes(), idx.bytes());
    }
  }
  return read_plain_tokens(file.bytes(), width);
}

Result<size_t> token_width(config::ArgReader& args) {
  MUSTER_TRY(const std::string type, args.get_string("type", "uint16"));
  if (type == "uint8") return size_t{1};
  if (type == "uint16") return size_t{2};
  if (type == "uint32" || type == "int32") return size_t{4};
  if (type == "uint64" || type == "int64") return size_t{8};
  return Error(ErrorKind::kJob, "`type` is uint8, uint16, uint32 or uint64, not '{}'", type);
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_tokens(const config::SourceOptions& options) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob, "the format tokens needs the file `path`, or a pattern of files");
  }
  if (options.context < 1) return Error(ErrorKind::kJob, "`context` must be at least 1");
  if (options.classes < 1) {
    return Error(ErrorKind::kJob,
                 "the format tokens needs `classes`, the size of the vocabulary (50257 for GPT-2)");
  }
  config::ArgReader args(options.args, "the format tokens");
  MUSTER_TRY(const size_t width, token_width(args));
  MUSTER_TRY(const int64_t stride, get_whole(args, "stride", options.context, 1, int64_t{1} << 40));
  MUSTER_RETURN_IF_ERROR(args.finish());
  MUSTER_TRY(const auto paths, match_files(options.path));
  std::vector<File> files;
  uint64_t windows = 0;
  const auto context = static_cast<uint64_t>(options.context);
  for (const auto& path : paths) {
    MUSTER_TRY(MappedFile file, MappedFile::open(path));
    auto tokens = read_tokens(path, file, width);
    if (!tokens.ok()) return std::move(tokens).error().context("'{}'", path);
    Tokens start = *tokens;
    start.bytes = start.bytes.first(std::min(start.count(), kChecked) * start.width);
    if (const uint64_t largest = largest_token(start);
        std::cmp_greater_equal(largest, options.classes)) {
      return too_large(path, largest, options.classes);
    }
    if (tokens->count() <= context) continue;  // too short for one window
    file.expect_random_reads();
    files.push_back({path, std::move(file), *tokens, windows});
    windows += (tokens->count() - context - 1) / static_cast<uint64_t>(stride) + 1;
  }
  if (windows == 0) {
    return Error(ErrorKind::kData,
                 "'{}' has too few tokens for one sample with `context: {}` and the token after it",
                 options.path, context);
  }
  MUSTER_TRY(const Slice chosen, select_samples(options, windows, options.path));
  Schema schema;
  schema.input = DType::kInt64;
  schema.input_shape = {options.context};
  schema.target_shape = {options.context};
  schema.classes = options.classes;
  return std::unique_ptr<Dataset>(std::make_unique<TokenDataset>(
      std::move(files), std::move(schema), static_cast<uint64_t>(stride), chosen));
}

}  // namespace muster::data
