// The yardstick of bench/streams.py: reads a file as a program would that has only the library of
// its format, and makes float32 samples of it, as training needs them.
//
//   bare_readers tfrecord FILE     lengths and checksums, then libprotobuf; the feature `image`
//   bare_readers lmdb FILE         liblmdb, then libprotobuf
//
// Prints what Samples::report() says.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <lmdb.h>

#include "bench/bare_readers.pb.h"
#include "bench/bare_samples.h"

namespace {

using muster::bench::Datum;
using muster::bench::Example;
using muster::bench::fail;
using muster::bench::Samples;

// CRC-32C, as TFRecord masks it.
__attribute__((target("sse4.2"))) uint32_t masked_crc(std::string_view bytes) {
  uint64_t crc = ~uint32_t{0};
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto tail = static_cast<uint32_t>(crc);
  for (; at < bytes.size(); ++at) {
    tail = __builtin_ia32_crc32qi(tail, static_cast<uint8_t>(bytes[at]));
  }
  tail = ~tail;
  return ((tail >> 15) | (tail << 17)) + 0xa282ead8U;
}

uint32_t load32(const char* from) {
  uint32_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void read_tfrecord(const char* path, Samples& samples) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);  // NOLINT(cppcoreguidelines-pro-type-vararg)
  if (file < 0) fail("cannot open the file");
  std::string buffer(size_t{4} << 20, '\0');
  size_t filled = 0;
  Example example;
  while (true) {
    const ssize_t got = ::read(file, buffer.data() + filled, buffer.size() - filled);
    if (got < 0) fail("cannot read the file");
    filled += static_cast<size_t>(got);
    size_t at = 0;
    while (filled - at >= 16) {
      const char* head = buffer.data() + at;
      uint64_t length = 0;
      std::memcpy(&length, head, sizeof(length));
      if (masked_crc({head, 8}) != load32(head + 8)) fail("a length is damaged");
      if (filled - at < 16 + length) {
        if (16 + length > buffer.size()) buffer.resize(16 + length);
        break;
      }
      const std::string_view record(head + 12, length);
      if (masked_crc(record) != load32(head + 12 + length)) fail("a record is damaged");
      if (!example.ParseFromArray(record.data(), static_cast<int>(length))) fail("no Example");
      const auto& features = example.features().feature();
      const auto image = features.find("image");
      if (image == features.end() || features.find("label") == features.end()) fail("no image");
      samples.take(image->second.bytes_list().value(0));
      at += 16 + length;
    }
    std::memmove(buffer.data(), buffer.data() + at, filled - at);
    filled -= at;
    if (got == 0) break;
  }
  if (filled != 0) fail("the file is cut short");
  ::close(file);
}

void check(int code) {
  if (code != MDB_SUCCESS) fail(mdb_strerror(code));
}

void read_lmdb(const char* path, Samples& samples) {
  struct stat info{};
  const bool is_file = ::stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
  MDB_env* environment = nullptr;
  MDB_txn* transaction = nullptr;
  MDB_dbi database = 0;
  MDB_cursor* cursor = nullptr;
  check(mdb_env_create(&environment));
  check(
      mdb_env_open(environment, path, MDB_RDONLY | MDB_NOLOCK | (is_file ? MDB_NOSUBDIR : 0U), 0));
  check(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction));
  check(mdb_dbi_open(transaction, nullptr, 0, &database));
  check(mdb_cursor_open(transaction, database, &cursor));
  MDB_val key{};
  MDB_val value{};
  Datum datum;
  int code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
  for (; code == MDB_SUCCESS; code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
    if (!datum.ParseFromArray(value.mv_data, static_cast<int>(value.mv_size))) fail("no Datum");
    samples.take(datum.data());
  }
  if (code != MDB_NOTFOUND) check(code);
  mdb_cursor_close(cursor);
  mdb_txn_abort(transaction);
  mdb_env_close(environment);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) fail("usage: bare_readers tfrecord|lmdb FILE");
  Samples samples;
  const std::string what = words[1];
  if (what == "tfrecord") {
    read_tfrecord(words[2], samples);
  } else if (what == "lmdb") {
    read_lmdb(words[2], samples);
  } else {
    fail("usage: bare_readers tfrecord|lmdb FILE");
  }
  samples.report();
}
