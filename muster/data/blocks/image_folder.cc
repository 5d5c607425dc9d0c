// Images in directories, one directory per class. Classes are numbered in the order of their names,
// and so are the files of each, bytewise: the locale must not change a model's outputs.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/file_system.h"
#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/decoding_dataset.h"
#include "muster/data/blocks/record.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string name;  // from the directory of all classes on
  uint64_t size = 0;
  int64_t label = 0;
};

class ImageFolder final : public DecodingDataset {
 public:
  ImageFolder(std::string root, std::vector<File> files, Recipe recipe, Schema schema, Slice chosen)
      : root_(std::move(root)),
        files_(std::move(files)),
        recipe_(std::move(recipe)),
        schema_(std::move(schema)),
        chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  Status try_read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const File& file = files_[chosen_.first + index];
    *reinterpret_cast<int64_t*>(target) = file.label;
    // Read, not mapped: a mapped file that becomes shorter meanwhile would end the process.
    MUSTER_TRY(const std::string contents, file_system_->read(root_ + "/" + file.name));
    auto status = recipe_.put_image(std::as_bytes(std::span(contents)), schema_,
                                    reinterpret_cast<float*>(input));
    if (!status.ok()) return std::move(status).error().context("'{}/{}'", root_, file.name);
    return {};
  }

 private:
  void add_contents(Hasher& hasher) const override {
    recipe_.add_to(schema_, hasher);
    uint64_t total = 0;
    for (uint64_t i = chosen_.first; i < chosen_.first + chosen_.count; ++i) {
      const File& file = files_[i];
      hasher.add(file.name.c_str(), file.name.size() + 1);
      hasher.add(&file.size, sizeof(file.size));
      hasher.add(&file.label, sizeof(file.label));
      total += file.size;
    }
    const HashedPieces hashed(total);
    for (uint64_t i = chosen_.first; i < chosen_.first + chosen_.count; ++i) {
      if (!hashed.contains(i)) continue;
      const auto contents = file_system_->read(root_ + "/" + files_[i].name);
      if (contents.ok()) hasher.add(std::as_bytes(std::span(*contents)));
    }
  }

  const std::unique_ptr<FileSystem> file_system_ = posix_file_system();
  const std::string root_;
  const std::vector<File> files_;
  const Recipe recipe_;
  const Schema schema_;
  const Slice chosen_;
};

bool is_image(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

Error cannot_list(const std::string& path, const std::error_code& why) {
  return Error(ErrorKind::kIo, "cannot list '{}': {}; check `path`", path, why.message());
}

Result<std::vector<std::string>> list_classes(const std::string& root) {
  std::error_code why;
  std::vector<std::string> names;
  for (fs::directory_iterator it(root, why), end; it != end; it.increment(why)) {
    std::error_code none;  // of a link that leads nowhere, which is no class
    if (it->is_directory(none) && !it->path().filename().string().starts_with('.')) {
      names.push_back(it->path().filename().string());
    }
  }
  if (why) return cannot_list(root, why);
  std::ranges::sort(names);
  if (names.empty()) {
    return Error(ErrorKind::kData, "'{}' has no directories; there must be one for each class",
                 root);
  }
  return names;
}

Status list_images(const std::string& root, const std::string& name, int64_t label,
                   std::vector<File>& files) {
  const std::string folder = root + "/" + name;
  const size_t before = files.size();
  std::error_code why;
  constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(folder, kFollow, why), end; it != end;
       it.increment(why)) {
    std::error_code none;  // of a link that leads nowhere, which is no image
    if (is_image(it->path()) && it->is_regular_file(none)) {
      files.push_back({it->path().string().substr(root.size() + 1), it->file_size(why), label});
    }
    if (why) break;
  }
  if (why) return cannot_list(folder, why);
  if (files.size() == before) {
    return Error(ErrorKind::kData,
                 "'{}' has no images (.jpg, .jpeg, .png); remove it if it is no class", folder);
  }
  std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end(),
            [](const File& a, const File& b) { return a.name < b.name; });
  return {};
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_image_folder(const config::SourceOptions& options) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob,
                 "the format images needs `path`, a directory with one directory per class");
  }
  std::string root = options.path;
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  MUSTER_TRY(const auto classes, list_classes(root));
  if (options.classes != 0 && std::cmp_less(options.classes, classes.size())) {
    return Error(ErrorKind::kData, "'{}' has {} directories, but `classes` is {}", root,
                 classes.size(), options.classes);
  }
  auto filled = options;
  if (filled.classes == 0) filled.classes = static_cast<int64_t>(classes.size());
  filled.target = "class";
  config::ArgReader args(options.args, "the format images");
  MUSTER_TRY(Recipe recipe, Recipe::make(filled, args, {.input = {"image"}}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  std::vector<File> files;
  for (size_t i = 0; i < classes.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(list_images(root, classes[i], static_cast<int64_t>(i), files));
  }
  MUSTER_TRY(const Slice chosen, select_samples(options, files.size(), root));
  const std::string first = root + "/" + files.front().name;
  MUSTER_TRY(const std::string contents, posix_file_system()->read(first));
  auto shape = recipe.image_shape(std::as_bytes(std::span(contents)));
  if (!shape.ok()) return std::move(shape).error().context("'{}'", first);
  Schema schema = recipe.schema_with(*std::move(shape));
  return std::unique_ptr<Dataset>(std::make_unique<ImageFolder>(
      std::move(root), std::move(files), std::move(recipe), std::move(schema), chosen));
}

}  // namespace muster::data
