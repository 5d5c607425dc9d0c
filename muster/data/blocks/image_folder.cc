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

#include <fmt/ranges.h>

#include "muster/base/check.h"
#include "muster/base/file_system.h"
#include "muster/base/text.h"
#include "muster/config/source.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/decoding_dataset.h"
#include "muster/data/blocks/image_classes.h"
#include "muster/data/blocks/record.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string name;  // from the directory of all classes on
  uint64_t size = 0;
  int64_t label = 0;  // -1: none
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
  // A file that is left out would give the hash of other data.
  Status try_add_contents(Hasher& hasher) const override {
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
      MUSTER_TRY(const auto contents, file_system_->read(root_ + "/" + files_[i].name));
      hasher.add(std::as_bytes(std::span(contents)));
    }
    return {};
  }

  const std::unique_ptr<FileSystem> file_system_ = posix_file_system();
  const std::string root_;
  const std::vector<File> files_;
  const Recipe recipe_;
  const Schema schema_;
  const Slice chosen_;
};

// As in a wildcard, which does not match them either (store/glob.h): macOS leaves ._cat.jpg beside
// cat.jpg in its zip files, which is no image, and notebooks leave .ipynb_checkpoints.
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_image(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

Error cannot_list(const std::string& path, const std::error_code& why) {
  return Error(ErrorKind::kIo, "cannot list '{}': {}; check `path`", path, why.message());
}

Result<std::vector<std::string>> list_folders(const std::string& root) {
  std::error_code why;
  std::vector<std::string> names;
  for (fs::directory_iterator it(root, why), end; it != end; it.increment(why)) {
    std::error_code none;  // of a link that leads nowhere, which is no class
    if (it->is_directory(none) && !is_hidden(it->path())) {
      names.push_back(it->path().filename().string());
    }
  }
  if (why) return cannot_list(root, why);
  std::ranges::sort(names);
  return names;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Those that the job names; nothing if it does not.
Result<std::vector<std::string>> named_classes(config::ArgReader& args) {
  std::vector<std::string> names;
  const config::Node* node = args.get("class_names");
  if (node == nullptr) return names;
  if (!node->is_list() || node->items().empty()) {
    return node->error("class_names is the list of the directories that are classes");
  }
  for (const auto& item : node->items()) {
    MUSTER_TRY(auto name, item.as_string("class_names"));
    // As list_folders() gives them: others would be files of several classes.
    if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos) {
      return item.error("class_names: '{}' is no name of a directory in `path`", name);
    }
    if (std::ranges::find(names, name) != names.end()) {
      return item.error("class_names has '{}' twice", name);
    }
    names.push_back(std::move(name));
  }
  return names;
}

// All directories must be among the names: one that is not would be left out silently.
Status check_named(const std::string& root, const std::vector<std::string>& names) {
  MUSTER_TRY(const auto folders, list_folders(root));
  for (const auto& folder : folders) {
    if (std::ranges::find(names, folder) != names.end()) continue;
    return Error(ErrorKind::kData,
                 "'{}/{}' is none of the {} classes{}; rename or remove it (`muster predict "
                 "--no-labels` takes images of any class)",
                 root, folder, names.size(), did_you_mean(folder, names));
  }
  return {};
}

Status list_images(const std::string& root, const std::string& name, int64_t label,
                   std::vector<File>& files) {
  const std::string folder = name.empty() ? root : root + "/" + name;
  const size_t before = files.size();
  std::error_code unknown;
  const bool absent = !fs::exists(folder, unknown) && !unknown;
  if (absent && !name.empty()) return {};  // a class that has a name, and no images here
  std::error_code why;
  constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(folder, kFollow, why), end; it != end;
       it.increment(why)) {
    std::error_code none;  // of a link that leads nowhere, which is no image
    if (is_hidden(it->path())) {
      it.disable_recursion_pending();
      continue;
    }
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

// Some images, so that sizes that differ are noticed before training, not in the middle of it.
Status check_shapes(const std::string& root, std::span<const File> files, const Recipe& recipe,
                    const std::vector<int64_t>& shape) {
  if (recipe.has_size()) return {};
  constexpr size_t kLooked = 16;
  for (size_t i = 1; i <= kLooked; ++i) {
    const std::string path = root + "/" + files[(files.size() - 1) * i / kLooked].name;
    MUSTER_TRY(const std::string contents, posix_file_system()->read(path));
    const auto other = recipe.image_shape(std::as_bytes(std::span(contents)));
    if (!other.ok() || *other == shape) continue;  // one that is damaged is found when it is read
    return Error(
        ErrorKind::kData,
        "images differ in size: '{}' has the shape [{}], and the first one [{}]; set `size` "
        "in `args`, such as `args: {{ size: 224, resize: 256 }}`",
        path, fmt::join(*other, ", "), fmt::join(shape, ", "));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> image_classes(const std::string& path) {
  const std::string root = without_slash(path);
  MUSTER_TRY(auto names, list_folders(root));
  if (names.empty()) {
    return Error(ErrorKind::kData,
                 "'{}' has no directories; there must be one for each class (`muster predict "
                 "--no-labels` takes images without classes)",
                 root);
  }
  return names;
}

Status number_classes_alike(const config::SourceOptions& train, config::SourceOptions& test) {
  if (train.format != "images" || test.format != "images" || !config::has_labels(test)) return {};
  if (test.args.find("class_names") != nullptr) return {};
  config::Node names;
  if (const auto* named = train.args.find("class_names")) {
    names = *named;
  } else {
    MUSTER_TRY(const auto classes, image_classes(train.path));
    std::vector<config::Node> items;
    for (const auto& name : classes) items.push_back(config::Node::scalar(name));
    names = config::Node::list(std::move(items));
  }
  auto entries = test.args.entries();
  entries.emplace_back("class_names", std::move(names));
  test.args = config::Node::map(std::move(entries));
  return {};
}

Result<std::unique_ptr<Dataset>> open_image_folder(const config::SourceOptions& options) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob,
                 "the format images needs `path`, a directory with one directory per class");
  }
  std::string root = without_slash(options.path);
  const bool labelled = config::has_labels(options);
  std::vector<std::string> classes;
  config::ArgReader args(options.args, "the format images");
  MUSTER_TRY(classes, named_classes(args));
  if (!labelled) classes.clear();
  if (labelled && classes.empty()) {
    MUSTER_TRY(classes, image_classes(root));
  } else if (labelled) {
    MUSTER_RETURN_IF_ERROR(check_named(root, classes));
  }
  if (options.classes != 0 && std::cmp_less(options.classes, classes.size())) {
    return Error(ErrorKind::kData, "'{}' has {} directories, but `classes` is {}", root,
                 classes.size(), options.classes);
  }
  auto filled = options;
  if (filled.classes == 0) filled.classes = std::max<int64_t>(1, std::ssize(classes));
  filled.target = "class";
  MUSTER_TRY(Recipe recipe, Recipe::make(filled, args, {.input = {"image"}}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  std::vector<File> files;
  for (size_t i = 0; i < classes.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(list_images(root, classes[i], static_cast<int64_t>(i), files));
  }
  if (!labelled) MUSTER_RETURN_IF_ERROR(list_images(root, "", -1, files));
  if (files.empty()) return Error(ErrorKind::kData, "'{}' has no images", root);
  MUSTER_TRY(const Slice chosen, select_samples(options, files.size(), root));
  const auto used = std::span(files).subspan(chosen.first, chosen.count);
  const std::string first = root + "/" + used.front().name;
  MUSTER_TRY(const std::string contents, posix_file_system()->read(first));
  auto shape = recipe.image_shape(std::as_bytes(std::span(contents)));
  if (!shape.ok()) return std::move(shape).error().context("'{}'", first);
  MUSTER_RETURN_IF_ERROR(check_shapes(root, used, recipe, *shape));
  MUSTER_TRY(Schema schema, recipe.schema_with(*std::move(shape), /*pixels=*/true));
  return std::unique_ptr<Dataset>(std::make_unique<ImageFolder>(
      std::move(root), std::move(files), std::move(recipe), std::move(schema), chosen));
}

}  // namespace muster::data
