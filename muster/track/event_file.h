// TensorBoard event files, written without any of its libraries.
//
// A file is a row of records (the TFRecord framing): the length, its checksum, the bytes, their
// checksum; the bytes are an Event in protobuf's encoding. The first says "brain.Event:2". Scalars
// are all we write. The functions that make the bytes are pure; the class puts them in a file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

struct Scalar {
  std::string_view tag;  // "train/loss". What is not UTF-8 in it becomes U+FFFD
  float value = 0;
};

// `data` framed as one record: its length and the data, each with its masked CRC-32C.
std::string encode_record(std::string_view data);
// Events, not framed. `wall` is seconds since 1970.
std::string encode_file_version(double wall);
std::string encode_scalars(double wall, int64_t step, std::span<const Scalar> scalars);
// Tells TensorBoard to forget what it saw of this step and later: a resumed run comes here again.
std::string encode_session_start(double wall, int64_t step);

// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// For one thread. Every event is in the kernel's hands when the call returns.
class EventFileWriter {
 public:
  // A new events.out.tfevents.* in `directory`: also for a resumed run, TensorBoard reads them in
  // the order of their names, which begin with the time.
  static Result<EventFileWriter> create(FileSystem& fs, const std::string& directory,
                                        const Clock& clock);

  Status add(int64_t step, std::span<const Scalar> scalars);
  // A resumed run: what was written of steps beyond `step` is void.
  Status resume_after(int64_t step);
  const std::string& path() const { return path_; }

 private:
  EventFileWriter(const Clock& clock, std::string path, std::unique_ptr<WritableFile> file)
      : clock_(&clock), path_(std::move(path)), file_(std::move(file)) {}
  double wall() const;

  const Clock* clock_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace muster::track
