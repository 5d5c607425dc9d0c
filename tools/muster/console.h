// What the command prints, and where: results on standard output, everything else on standard
// error, so that `muster ... -o json | jq` always works.
//
// Used by one thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "muster/base/result.h"

namespace muster::cli {

enum class Format { kTable, kJson };

enum class Paint { kPlain, kBold, kDim, kGood, kWarning, kBad };

class Console {
 public:
  struct Style {
    bool colour_out = false;
    bool colour_err = false;
    int width = 0;  // columns of the terminal; 0: not a terminal, lines may be as long as they are
  };

  // Of this process: colours on a terminal unless NO_COLOR is set or TERM is dumb.
  static Console of_process();
  Console(std::FILE* out, std::FILE* err, Style style) : out_(out), err_(err), style_(style) {}

  void out(std::string_view text);
  void line(std::string_view text);
  // A line for standard error, as it is.
  void aside(std::string_view text);
  // One sentence each, with "muster: " in front.
  void note(std::string_view sentence);
  void warning(std::string_view sentence);
  void error(std::string_view sentence);
  // And, for programs, as one JSON object on standard output.
  void error(ErrorKind kind, std::string_view sentence, bool as_json);

  // Text for standard output in a colour, or as it is.
  std::string painted(Paint paint, std::string_view text) const;
  bool has_colour() const { return style_.colour_out; }
  int width() const { return style_.width; }

  // What was printed is with its reader; an error if that failed (a full disk behind `>`).
  Status flush();

 private:
  void sentence(Paint paint, std::string_view label, std::string_view text);

  std::FILE* out_;
  std::FILE* err_;
  Style style_;
};

}  // namespace muster::cli
