#include "muster/pt2/zip.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <zlib.h>

namespace muster::pt2 {
namespace {

static_assert(std::endian::native == std::endian::little, "zip is little-endian");

constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kLocalSize = 30;
constexpr size_t kCentralSize = 46;
constexpr size_t kEndSize = 22;
constexpr size_t kEnd64Size = 56;
constexpr size_t kLocator64Size = 20;
constexpr size_t kLongestComment = 65535;
constexpr uint64_t kMostEntries = 1'000'000;
constexpr uint16_t kIn64 = 0xffff;          // a count that is in the zip64 record instead
constexpr uint32_t kSizeIn64 = 0xffffffff;  // a size or an offset, likewise
constexpr uint16_t kExtra64 = 1;
constexpr size_t kAlignment = 64;

using Bytes = std::span<const std::byte>;

// At an offset that the caller has checked.
template <typename T>
T get(Bytes bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

bool lies_within(uint64_t begin, uint64_t size, uint64_t all) {
  return begin <= all && size <= all - begin;
}

// Where the central directory is.
struct Directory {
  uint64_t begin = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

// An entry of the central directory.
struct Listed {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0;
  uint64_t size = 0;
  uint64_t local = 0;  // offset of its local header
};

class Reader {
 public:
  Reader(Bytes file, const std::string& name) : file_(file), name_(name) {}

  Result<std::vector<ZipEntry>> read() {
    MUSTER_TRY(const Directory directory, find_directory());
    std::vector<ZipEntry> entries;
    std::vector<uint32_t> checksums;
    std::set<std::string> names;
    std::vector<std::pair<uint64_t, uint64_t>> places = {{directory.begin, directory.size}};
    size_t at = directory.begin;
    const size_t end = directory.begin + directory.size;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      MUSTER_TRY(const Listed listed, read_listed(at, end));
      if (!names.insert(listed.name).second) {
        return bad("it has two entries '{}'", listed.name);
      }
      MUSTER_TRY(const Bytes data, find_data(listed, places));
      entries.push_back({listed.name, data});
      checksums.push_back(listed.crc);
    }
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i) {
      const auto& [begin, size] = places[i - 1];
      if (begin + size > places[i].first) return bad("its entries overlap");
    }
    // Only now, so that each byte is read once, however many entries claim it.
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& [name, data] = entries[i];
      const auto* bytes = reinterpret_cast<const Bytef*>(data.data());
      if (crc32_z(0, bytes, data.size()) != checksums[i]) {
        return bad("the bytes of '{}' do not have their checksum", name);
      }
    }
    return entries;
  }

 private:
  template <typename... Args>
  Error bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(ErrorKind::kJob,
                 "'{}' is not a sound .pt2 file: {}; export it again with torch.export.save, or "
                 "take another copy",
                 name_, fmt::format(format, std::forward<Args>(args)...));
  }

  // The end record is the last thing in the file, but for a comment.
  std::optional<size_t> find_end() const {
    if (file_.size() < kEndSize) return std::nullopt;
    const size_t last = file_.size() - kEndSize;
    const size_t first = last > kLongestComment ? last - kLongestComment : 0;
    for (size_t at = last + 1; at-- > first;) {
      if (get<uint32_t>(file_, at) == kEnd && get<uint16_t>(file_, at + 20) == last - at) return at;
    }
    return std::nullopt;
  }

  Result<Directory> find_directory() const {
    const auto end = find_end();
    if (!end) return bad("it is no zip file, or its end is missing");
    Directory directory{.begin = get<uint32_t>(file_, *end + 16),
                        .size = get<uint32_t>(file_, *end + 12),
                        .entries = get<uint16_t>(file_, *end + 10)};
    size_t behind = *end;
    const bool in_64 =
        directory.begin == kSizeIn64 || directory.size == kSizeIn64 || directory.entries == kIn64;
    if (in_64 && *end >= kLocator64Size &&
        get<uint32_t>(file_, *end - kLocator64Size) == kLocator64) {
      const auto at = get<uint64_t>(file_, *end - kLocator64Size + 8);
      if (!lies_within(at, kEnd64Size, *end - kLocator64Size) ||
          get<uint32_t>(file_, at) != kEnd64) {
        return bad("its zip64 end record is not where it should be");
      }
      directory = {.begin = get<uint64_t>(file_, at + 48),
                   .size = get<uint64_t>(file_, at + 40),
                   .entries = get<uint64_t>(file_, at + 32)};
      behind = at;
    }
    if (!lies_within(directory.begin, directory.size, behind)) {
      return bad("its directory would be outside of the file");
    }
    if (directory.entries > std::min<uint64_t>(kMostEntries, directory.size / kCentralSize)) {
      return bad("it would have {} entries", directory.entries);
    }
    return directory;
  }

  // Advances `at`.
  Result<Listed> read_listed(size_t& at, size_t end) const {
    if (!lies_within(at, kCentralSize, end) || get<uint32_t>(file_, at) != kCentral) {
      return bad("its directory is damaged");
    }
    Listed listed{.name = {},
                  .flags = get<uint16_t>(file_, at + 8),
                  .method = get<uint16_t>(file_, at + 10),
                  .crc = get<uint32_t>(file_, at + 16),
                  .packed = get<uint32_t>(file_, at + 20),
                  .size = get<uint32_t>(file_, at + 24),
                  .local = get<uint32_t>(file_, at + 42)};
    const size_t name_size = get<uint16_t>(file_, at + 28);
    const size_t extra_size = get<uint16_t>(file_, at + 30);
    const size_t comment_size = get<uint16_t>(file_, at + 32);
    at += kCentralSize;
    if (!lies_within(at, name_size + extra_size + comment_size, end)) {
      return bad("its directory is damaged");
    }
    listed.name.assign(reinterpret_cast<const char*>(file_.data()) + at, name_size);
    at += name_size;
    MUSTER_RETURN_IF_ERROR(read_extra(file_.subspan(at, extra_size), listed));
    at += extra_size + comment_size;
    return listed;
  }

  // What did not fit 32 bits, in this order and only that.
  Status read_extra(Bytes extra, Listed& listed) const {
    std::vector<uint64_t*> wide;
    for (uint64_t* field : {&listed.size, &listed.packed, &listed.local}) {
      if (*field == kSizeIn64) wide.push_back(field);
    }
    if (wide.empty()) return {};
    while (extra.size() >= 4) {
      const auto id = get<uint16_t>(extra, 0);
      const size_t size = get<uint16_t>(extra, 2);
      if (size > extra.size() - 4) break;
      if (id == kExtra64) {
        if (size < 8 * wide.size()) break;
        for (size_t i = 0; i < wide.size(); ++i) *wide[i] = get<uint64_t>(extra, 4 + 8 * i);
        return {};
      }
      extra = extra.subspan(4 + size);
    }
    return bad("the zip64 sizes of '{}' are missing", listed.name);
  }

  Result<Bytes> find_data(const Listed& listed,
                          std::vector<std::pair<uint64_t, uint64_t>>& places) const {
    if ((listed.flags & 1) != 0) return bad("'{}' is encrypted", listed.name);
    if (listed.method != 0 || listed.packed != listed.size) {
      return bad("'{}' is compressed, which PyTorch never does", listed.name);
    }
    if (!lies_within(listed.local, kLocalSize, file_.size()) ||
        get<uint32_t>(file_, listed.local) != kLocal) {
      return bad("'{}' is not where the directory says", listed.name);
    }
    const size_t name_size = get<uint16_t>(file_, listed.local + 26);
    const size_t header = kLocalSize + name_size + get<uint16_t>(file_, listed.local + 28);
    if (!lies_within(listed.local, header, file_.size()) ||
        !lies_within(listed.local + header, listed.size, file_.size())) {
      return bad("'{}' would be outside of the file", listed.name);
    }
    const std::string_view local_name(
        reinterpret_cast<const char*>(file_.data()) + listed.local + kLocalSize, name_size);
    if (local_name != listed.name || get<uint16_t>(file_, listed.local + 8) != 0) {
      return bad("'{}' has another name or method where it is", listed.name);
    }
    places.emplace_back(listed.local, header + listed.size);
    return file_.subspan(listed.local + header, listed.size);
  }

  Bytes file_;
  const std::string& name_;
};

class Builder {
 public:
  template <std::integral T>
  Builder& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Builder& put(std::string_view text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

constexpr uint16_t kVersion = 45;  // zip64
constexpr uint16_t kDay = 0x21;    // 1980-01-01, the first that the format knows
constexpr uint16_t kUtf8 = 0x800;

uint32_t clipped(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, kSizeIn64));
}

// What both headers of an entry have in common.
Builder& put_common(Builder& header, uint32_t crc, uint64_t size, size_t name, size_t extra) {
  return header.put(kUtf8)
      .put(uint16_t{0})
      .put(uint16_t{0})
      .put(kDay)
      .put(crc)
      .put(clipped(size))
      .put(clipped(size))
      .put(static_cast<uint16_t>(name))
      .put(static_cast<uint16_t>(extra));
}

// Filled up so that the data is aligned. The filling is an extra field of its own, as PyTorch's.
std::string local_extra(uint64_t at, size_t name, uint64_t size) {
  Builder extra;
  if (size >= kSizeIn64) {
    extra.put(kExtra64).put(uint16_t{16}).put(size).put(size);
  }
  constexpr size_t kFillerHeader = 4;
  const uint64_t data = at + kLocalSize + name + extra.text().size() + kFillerHeader;
  const size_t filling = (kAlignment - data % kAlignment) % kAlignment;
  extra.put(uint16_t{0x4246}).put(static_cast<uint16_t>(filling)).put(std::string(filling, 'Z'));
  return extra.text();
}

}  // namespace

Result<std::vector<ZipEntry>> read_zip(Bytes file, const std::string& name) {
  return Reader(file, name).read();
}

Status write_zip(WritableFile& file, std::span<const ZipEntry> entries) {
  uint64_t at = 0;
  const auto append = [&](Bytes bytes) -> Status {
    at += bytes.size();
    return file.append(bytes);
  };
  const auto append_text = [&](const std::string& text) {
    return append(std::as_bytes(std::span(text)));
  };
  Builder directory;
  for (const ZipEntry& entry : entries) {
    if (entry.name.size() > std::numeric_limits<uint16_t>::max()) {
      return Error(ErrorKind::kInternal, "a name of {} bytes does not fit a zip file",
                   entry.name.size());
    }
    const uint64_t size = entry.data.size();
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(entry.data.data()), entry.data.size()));
    const uint64_t begin = at;
    const std::string extra = local_extra(at, entry.name.size(), size);
    Builder local;
    put_common(local.put(kLocal).put(kVersion), crc, size, entry.name.size(), extra.size())
        .put(entry.name)
        .put(extra);
    MUSTER_RETURN_IF_ERROR(append_text(local.text()));
    MUSTER_RETURN_IF_ERROR(append(entry.data));

    Builder wide;
    if (size >= kSizeIn64) wide.put(size).put(size);
    if (begin >= kSizeIn64) wide.put(begin);
    Builder extra64;
    if (!wide.text().empty()) {
      extra64.put(kExtra64).put(static_cast<uint16_t>(wide.text().size())).put(wide.text());
    }
    put_common(directory.put(kCentral).put(kVersion).put(kVersion), crc, size, entry.name.size(),
               extra64.text().size())
        .put(uint16_t{0})
        .put(uint16_t{0})
        .put(uint16_t{0})
        .put(uint32_t{0})
        .put(clipped(begin))
        .put(entry.name)
        .put(extra64.text());
  }
  const uint64_t begin = at;
  const uint64_t size = directory.text().size();
  const uint64_t count = entries.size();
  MUSTER_RETURN_IF_ERROR(append_text(directory.text()));
  Builder end;
  if (count >= kIn64 || size >= kSizeIn64 || begin >= kSizeIn64) {
    const uint64_t end64 = at;
    end.put(kEnd64).put(uint64_t{44}).put(kVersion).put(kVersion).put(uint32_t{0}).put(uint32_t{0});
    end.put(count).put(count).put(size).put(begin);
    end.put(kLocator64).put(uint32_t{0}).put(end64).put(uint32_t{1});
  }
  const auto short_count = static_cast<uint16_t>(std::min<uint64_t>(count, kIn64));
  end.put(kEnd).put(uint16_t{0}).put(uint16_t{0}).put(short_count).put(short_count);
  end.put(clipped(size)).put(clipped(begin)).put(uint16_t{0});
  return append_text(end.text());
}

}  // namespace muster::pt2
