// What the files of this plugin share: Arrow's errors as ours, objects as files of Arrow, and files
// of ours as its streams.
#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/data/blocks/block_format.h"

namespace muster::data {

// What is read from a block is never more than this, whatever the file says of itself.
inline constexpr int64_t kMostValues = int64_t{1} << 28;
inline constexpr int64_t kMostBytes = int64_t{4} << 30;
// Likewise what so many bytes of a file may be once they are decompressed. Files say how much
// memory that takes before anything is decompressed: a few damaged bytes must not ask for
// gigabytes.
inline int64_t most_unpacked(uint64_t stored) {
  constexpr int64_t kAlways = int64_t{64} << 20;
  constexpr int64_t kRatio = 1024;
  if (stored > static_cast<uint64_t>((kMostBytes - kAlways) / kRatio)) return kMostBytes;
  return kAlways + kRatio * static_cast<int64_t>(stored);
}

// Likewise what all byte strings of a column of a row group may be together, whose pages are so
// long once they are decompressed: a dictionary has each value once, and a few bytes repeat it.
inline uint64_t most_repeated(uint64_t unpacked) {
  constexpr uint64_t kAlways = uint64_t{256} << 20;
  constexpr uint64_t kRatio = 64;
  return std::clamp(kRatio * unpacked, kAlways, static_cast<uint64_t>(kMostBytes));
}

inline Error damaged(std::string_view format, std::string_view what) {
  return Error(ErrorKind::kData, "the {} file is damaged or not one ({}); fetch it again", format,
               what);
}

// MUSTER_ARROW_TRY(auto x, expression): x is the value of an arrow::Result, or this function
// returns an error of kind kData.
#define MUSTER_ARROW_TRY_(tmp, declaration, ...)                                  \
  auto tmp = (__VA_ARGS__);                                                       \
  if (!tmp.ok()) return ::muster::data::damaged("Arrow", tmp.status().message()); \
  declaration = std::move(tmp).ValueUnsafe()
#define MUSTER_ARROW_TRY(declaration, ...) \
  MUSTER_ARROW_TRY_(MUSTER_CONCAT(arrow_try_, __LINE__), declaration, __VA_ARGS__)

// malloc, up to a limit.
class LimitedPool {
 public:
  explicit LimitedPool(int64_t most)
      : counting_(arrow::system_memory_pool()), limited_(&counting_, most) {}
  arrow::MemoryPool* get() { return &limited_; }

 private:
  arrow::ProxyMemoryPool counting_;  // of what comes from here alone
  arrow::CappedMemoryPool limited_;
};

// An object as a file. Keeps the error of a read, which Arrow would only keep the text of.
class ObjectFile final : public arrow::io::RandomAccessFile {
 public:
  // `object` must outlive it.
  explicit ObjectFile(const ObjectReader& object) : object_(object) {}

  const std::optional<Error>& error() const { return error_; }

  arrow::Result<int64_t> GetSize() override { return static_cast<int64_t>(object_.size); }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    const auto size = static_cast<int64_t>(object_.size);
    if (position < 0 || position > size || bytes < 0) {
      return arrow::Status::Invalid("a read outside of the file");
    }
    const int64_t some = std::min(bytes, size - position);
    auto status = object_.read(static_cast<uint64_t>(position),
                               std::span(static_cast<std::byte*>(out), static_cast<size_t>(some)));
    if (status.ok()) return some;
    error_ = std::move(status).error();
    return arrow::Status::IOError(error_->message());
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    const int64_t most = std::max<int64_t>(0, static_cast<int64_t>(object_.size) - position);
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(std::min(bytes, most),
                                                                      arrow::system_memory_pool()));
    ARROW_ASSIGN_OR_RAISE(const int64_t got,
                          ReadAt(position, buffer->size(), buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(got));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position_, bytes, out));
    position_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
    position_ += buffer->size();
    return buffer;
  }

 private:
  const ObjectReader& object_;
  int64_t position_ = 0;
  std::optional<Error> error_;
};

// A file of ours as a stream of Arrow. Keeps the error of a write.
class FileStream final : public arrow::io::OutputStream {
 public:
  explicit FileStream(WritableFile& file) : file_(file) {}

  const std::optional<Error>& error() const { return error_; }

  arrow::Status Write(const void* data, int64_t bytes) override {
    auto status =
        file_.append(std::span(static_cast<const std::byte*>(data), static_cast<size_t>(bytes)));
    if (!status.ok()) {
      error_ = std::move(status).error();
      return arrow::Status::IOError(error_->message());
    }
    written_ += bytes;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return written_; }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }

 private:
  WritableFile& file_;
  int64_t written_ = 0;
  std::optional<Error> error_;
};

// Why a write failed: what the file said, not what Arrow makes of it.
inline Error write_failed(const FileStream& stream, const arrow::Status& status) {
  if (stream.error()) return *stream.error();
  return Error(status.IsOutOfMemory() ? ErrorKind::kMachine : ErrorKind::kInternal,
               "a Parquet file could not be written: {}", status.message());
}

}  // namespace muster::data
