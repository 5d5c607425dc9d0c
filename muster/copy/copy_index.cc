#include "muster/copy/copy_index.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "muster/base/hash.h"
#include "muster/base/text.h"

namespace muster::copy {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr uint64_t kMostIndexBytes = uint64_t{64} << 20;

std::string hash_of(std::string_view text) { return hash128(std::as_bytes(std::span(text))).hex(); }

// A path that stays below the directory that it is put behind.
bool is_inside(std::string_view name) {
  const auto parts = split(name, '/');
  const bool printing = std::ranges::none_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  return printing && std::ranges::none_of(parts, [](const std::string& part) {
           return part.empty() || part == "." || part == "..";
         });
}

json to_json(const std::vector<CopiedFile>& files) {
  auto list = json::array();
  for (const auto& file : files) {
    list.push_back({{"name", file.name},
                    {"object", file.object},
                    {"size", file.size},
                    {"xxh3_128", file.hash}});
  }
  return list;
}

// Throws json::exception.
std::vector<CopiedFile> files_of(const json& list) {
  std::vector<CopiedFile> files;
  for (const auto& file : list) {
    files.push_back({.name = file.at("name").get<std::string>(),
                     .object = file.at("object").get<std::string>(),
                     .size = file.at("size").get<uint64_t>(),
                     .hash = file.at("xxh3_128").get<std::string>()});
  }
  return files;
}

Error unreadable(std::string_view why) {
  return Error(ErrorKind::kCheckpoint, "it is not an index of a run's copy ({})", why);
}

Status check_names(const CopyIndex& index) {
  const auto check = [](const std::vector<CopiedFile>& files, const std::string& below) -> Status {
    for (const auto& file : files) {
      if (!is_inside(file.name) || !is_inside(file.object) || !file.name.starts_with(below)) {
        return unreadable("it names a file where none may be");
      }
    }
    return {};
  };
  if (!is_inside(index.name) || index.name.find('/') != std::string::npos) {
    return unreadable("the run's name is none");
  }
  MUSTER_RETURN_IF_ERROR(check(index.files, ""));
  for (const auto& checkpoint : index.checkpoints) {
    if (checkpoint.step < 0) return unreadable("a step is negative");
    MUSTER_RETURN_IF_ERROR(
        check(checkpoint.files,
              fmt::format("checkpoints/{}/", ckpt::snapshot_directory_name(checkpoint.step))));
  }
  return {};
}

}  // namespace

std::string CopyIndex::encode() const {
  auto list = json::array();
  for (const auto& checkpoint : checkpoints) {
    list.push_back({{"step", checkpoint.step},
                    {"roster", checkpoint.roster},
                    {"best", checkpoint.best},
                    {"files", to_json(checkpoint.files)}});
  }
  json object = {{"format", kFormat}, {"run", run},          {"name", name},
                 {"claim", claim},    {"writer", writer},    {"host", host},
                 {"roster", roster},  {"checkpoints", list}, {"files", to_json(files)}};
  object["xxh3_128"] = hash_of(object.dump(-1, ' ', false, json::error_handler_t::replace));
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<CopyIndex> CopyIndex::decode(std::string_view text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return unreadable("it is no JSON object");
  try {
    const auto expected = object.at("xxh3_128").get<std::string>();
    object.erase("xxh3_128");
    if (hash_of(object.dump(-1, ' ', false, json::error_handler_t::replace)) != expected) {
      return unreadable("it was changed");
    }
    if (const int format = object.at("format").get<int>(); format != kFormat) {
      return Error(ErrorKind::kMachine,
                   "it has format {}, this Muster reads format {}; use the version that wrote it",
                   format, kFormat);
    }
    CopyIndex index;
    index.run = object.at("run").get<std::string>();
    index.name = object.at("name").get<std::string>();
    index.claim = object.at("claim").get<uint64_t>();
    index.writer = object.at("writer").get<std::string>();
    index.host = object.at("host").get<std::string>();
    index.roster = object.at("roster").get<uint64_t>();
    index.files = files_of(object.at("files"));
    for (const auto& each : object.at("checkpoints")) {
      CopiedCheckpoint checkpoint;
      checkpoint.step = each.at("step").get<int64_t>();
      checkpoint.roster = each.at("roster").get<uint64_t>();
      checkpoint.best = each.at("best").get<bool>();
      checkpoint.files = files_of(each.at("files"));
      index.checkpoints.push_back(std::move(checkpoint));
    }
    MUSTER_RETURN_IF_ERROR(check_names(index));
    return index;
  } catch (const json::exception&) {
    return unreadable("something is missing");
  }
}

const CopiedFile* CopyIndex::find(std::string_view file) const {
  const auto found = std::ranges::find(files, file, &CopiedFile::name);
  return found == files.end() ? nullptr : &*found;
}

const CopiedCheckpoint* CopyIndex::newest() const {
  return checkpoints.empty() ? nullptr : &checkpoints.back();
}

const CopiedCheckpoint* CopyIndex::best() const {
  const auto found = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                  [](const CopiedCheckpoint& each) { return each.best; });
  return found == checkpoints.rend() ? nullptr : &*found;
}

std::string plain_place(std::string to) {
  constexpr std::string_view kFile = "file://";
  if (to.starts_with(kFile)) to.erase(0, kFile.size());
  while (to.size() > 1 && to.ends_with('/')) to.pop_back();
  return to;
}

std::string address_in(const std::string& to, std::string_view name) {
  return fmt::format("{}/{}", to, name);
}

Result<std::optional<StoredIndex>> read_index(store::Store& store, const std::string& to) {
  const std::string address = address_in(to, kIndexFile);
  // A pattern, because it is no error if nothing matches it.
  const std::string pattern = address_in(to, "latest.jso?");
  constexpr int kTries = 20;  // it may be replaced between the list and the read
  for (int i = 1;; ++i) {
    MUSTER_TRY(const auto found, store.list(pattern));
    const auto object = std::ranges::find_if(
        found, [](const store::Object& each) { return each.name.ends_with(kIndexFile); });
    if (object == found.end()) return std::optional<StoredIndex>();
    if (object->size > kMostIndexBytes) {
      return unreadable("it is too large").context("'{}'", address);
    }
    std::string text(object->size, ' ');
    const auto read = store.read(*object, 0, std::as_writable_bytes(std::span(text)));
    if (!read.ok() && (read.error().kind() != ErrorKind::kData || i == kTries)) return read.error();
    if (!read.ok()) continue;
    auto index = CopyIndex::decode(text);
    if (!index.ok()) return std::move(index).error().context("'{}'", address);
    return std::optional(StoredIndex{.index = *std::move(index), .version = object->version});
  }
}

bool is_same(const ckpt::SnapshotInfo& local, const CopiedCheckpoint& copied) {
  if (local.step != copied.step || local.roster != copied.roster || local.best != copied.best) {
    return false;
  }
  return std::ranges::all_of(local.files, [&](const ckpt::SnapshotFile& file) {
    return std::ranges::any_of(copied.files, [&](const CopiedFile& there) {
      return there.name.ends_with("/" + file.name) && there.size == file.size &&
             there.hash == file.hash;
    });
  });
}

}  // namespace muster::copy
