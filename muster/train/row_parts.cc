#include "muster/train/row_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/fd.h"

namespace muster::train {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

static_assert(std::has_unique_object_representations_v<Hash128>);

// A hasher that has seen what the rows of a part depend on.
Hasher begin_hash(const parts::PartPlan& plan, size_t part) {
  const std::string about =
      fmt::format("{}\n{} {}\n", plan.facts.dump(), plan.borders[part], plan.borders[part + 1]);
  Hasher hasher;
  hasher.add(about.data(), about.size());
  return hasher;
}

Error not_this_part(const std::string& path) {
  return Error(ErrorKind::kData,
               "'{}' is damaged, or a part of another result; delete it, and run the same command "
               "again",
               path);
}

// Exactly as many bytes as `into` has.
Status read_next(const Fd& from, std::span<std::byte> into, const std::string& path) {
  while (!into.empty()) {
    const ssize_t got = ::read(from.get(), into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(errno, fmt::format("cannot read '{}'", path));
    if (got == 0) return not_this_part(path);
    into = into.subspan(static_cast<size_t>(got));
  }
  return {};
}

// Appends the rows of a part to the table, and compares the hash behind them with `hasher`.
Status append_part(const std::string& path, uint64_t rows, size_t row_bytes, Hasher hasher,
                   data::TableFile& table) {
  const Fd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return io_error(errno, fmt::format("cannot open '{}'", path));
  struct stat facts{};
  if (::fstat(from.get(), &facts) != 0) {
    return io_error(errno, fmt::format("cannot read '{}'", path));
  }
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size < sizeof(Hash128)) return not_this_part(path);
  uint64_t left = size - sizeof(Hash128);
  if (left % row_bytes != 0 || left / row_bytes != rows) return not_this_part(path);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(left, kReadBytes)));
  while (left > 0) {
    const auto some =
        std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(left, buffer.size())));
    MUSTER_RETURN_IF_ERROR(read_next(from, some, path));
    hasher.add(some);
    MUSTER_RETURN_IF_ERROR(table.append(some));
    left -= some.size();
  }
  std::array<Hash128, 1> stored;
  MUSTER_RETURN_IF_ERROR(read_next(from, std::as_writable_bytes(std::span(stored)), path));
  if (stored[0] != hasher.finish()) return not_this_part(path);
  return {};
}

}  // namespace

RowPartWriter::RowPartWriter(const parts::PartPlan& plan, size_t part, WritableFile& file)
    : file_(file), hasher_(begin_hash(plan, part)) {}

Status RowPartWriter::append(std::string_view rows) {
  hasher_.add(rows.data(), rows.size());
  return file_.append(rows);
}

Status RowPartWriter::finish() {
  const std::array<Hash128, 1> hash = {hasher_.finish()};
  return file_.append(std::as_bytes(std::span(hash)));
}

Status join_rows(const parts::PartsDirectory& directory, const parts::PartPlan& plan,
                 const data::TableForm& form, WritableFile& file) {
  const size_t row_bytes = form.row_bytes();
  MUSTER_CHECK(row_bytes > 0, "rows have columns");
  MUSTER_TRY(auto table, data::TableFile::open(file, form));
  for (size_t part = 0; part < plan.parts(); ++part) {
    const uint64_t rows = plan.borders[part + 1] - plan.borders[part];
    MUSTER_RETURN_IF_ERROR(
        append_part(directory.part_file(part), rows, row_bytes, begin_hash(plan, part), table));
  }
  return table.finish();
}

}  // namespace muster::train
