#include "muster/pt2/zip.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/pt2/pt2_testing.h"

namespace muster::pt2 {
namespace {

using testing::HasSubstr;

// Python's zipfile.ZipFile(path, "w").writestr(zipfile.ZipInfo("a/b"), b"hello").
std::string written_by_python() {
  using namespace std::string_literals;
  return "PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00\x86\xa6\x10\x36\x05\x00\x00\x00\x05"
         "\x00\x00\x00\x03\x00\x00\x00"s
         "a/bhello"s
         "PK\x01\x02\x14\x03\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00\x86\xa6\x10\x36\x05\x00\x00"
         "\x00\x05\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00"
         "\x00\x00"s
         "a/b"s
         "PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00\x31\x00\x00\x00\x26\x00\x00\x00\x00\x00"s;
}

std::string error_of(const std::string& file) {
  const auto read = read_zip(bytes_of(file), "m.pt2");
  if (read.ok()) return "no error";
  EXPECT_EQ(read.error().kind(), ErrorKind::kJob);
  EXPECT_THAT(read.error().message(), HasSubstr("'m.pt2'"));
  return read.error().message();
}

std::string changed(std::string file, size_t at, char to) {
  file.at(at) = to;
  return file;
}

TEST(Zip, ReadsWhatPythonWrote) {
  const std::string file = written_by_python();
  const auto read = read_zip(bytes_of(file), "m.pt2");
  ASSERT_TRUE(read.ok()) << read.error().message();
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0].name, "a/b");
  EXPECT_EQ(std::memcmp((*read)[0].data.data(), "hello", 5), 0);
}

TEST(Zip, WritesWhatItReads) {
  const std::vector<TextEntry> entries = {
      {"m/weights/0", std::string(1000, 'x')}, {"m/empty", ""}, {"m/model.json", "{}"}};
  const std::string file = zip_of(entries);
  const auto read = read_zip(bytes_of(file), "m.pt2");
  ASSERT_TRUE(read.ok()) << read.error().message();
  ASSERT_EQ(read->size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, data] = (*read)[i];
    EXPECT_EQ(name, entries[i].name);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()),
              entries[i].text);
    EXPECT_EQ((data.data() - bytes_of(file).data()) % 64, 0) << name;
  }
  EXPECT_EQ(file, zip_of(entries));
}

TEST(Zip, TellsWhatIsWrong) {
  const std::string file = written_by_python();
  EXPECT_EQ(error_of(file), "no error");
  EXPECT_THAT(error_of(""), HasSubstr("no zip file"));
  EXPECT_THAT(error_of(file.substr(0, file.size() - 1)), HasSubstr("no zip file"));
  EXPECT_THAT(error_of(file.substr(1)), HasSubstr("directory would be outside"));
  EXPECT_THAT(error_of(changed(file, 34, 'H')), HasSubstr("checksum"));
  EXPECT_THAT(error_of(changed(file, 30, 'b')), HasSubstr("another name"));
  EXPECT_THAT(error_of(changed(file, 8, 8)), HasSubstr("another name or method"));
  EXPECT_THAT(error_of(changed(file, 38 + 10, 8)), HasSubstr("compressed"));
  EXPECT_THAT(error_of(changed(file, 38 + 8, 1)), HasSubstr("encrypted"));
  EXPECT_THAT(error_of(changed(file, 38 + 42, 1)), HasSubstr("not where the directory says"));
  EXPECT_THAT(error_of(changed(file, file.size() - 12, 9)), HasSubstr("would have 9 entries"));
  EXPECT_THAT(error_of(changed(file, file.size() - 3, 1)), HasSubstr("outside of the file"));
  // An entry that reaches into the directory. Its checksum is wrong too, but nothing is read before
  // it is known that no byte belongs to two entries: 10,000 of them, one inside the other, would
  // make hours of a small file.
  std::string longer = changed(changed(file, 38 + 20, 9), 38 + 24, 9);
  EXPECT_THAT(error_of(longer), HasSubstr("overlap"));
  EXPECT_THAT(error_of(zip_of({{"a", "1"}, {"a", "2"}})), HasSubstr("two entries 'a'"));
}

TEST(Zip, RefusesEachTruncation) {
  const std::string file = zip_of({{"a", "some text"}, {"b", "more"}});
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(error_of(file.substr(0, size)), "no error") << size;
  }
}

}  // namespace
}  // namespace muster::pt2
