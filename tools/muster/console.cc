#include "tools/muster/console.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

namespace muster::cli {
namespace {

std::string_view code(Paint paint) {
  switch (paint) {
    case Paint::kPlain:
      return "";
    case Paint::kBold:
      return "\033[1m";
    case Paint::kDim:
      return "\033[2m";
    case Paint::kGood:
      return "\033[32m";
    case Paint::kWarning:
      return "\033[33m";
    case Paint::kBad:
      return "\033[31m";
  }
  return "";
}

std::string paint_text(bool colour, Paint paint, std::string_view text) {
  if (!colour || paint == Paint::kPlain) return std::string(text);
  return fmt::format("{}{}\033[0m", code(paint), text);
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes it
  return value == nullptr ? "" : value;
}

int terminal_width(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

Console Console::of_process() {
  const bool colours = variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  const bool out_is_terminal = isatty(STDOUT_FILENO) == 1;
  Style style;
  style.colour_out = colours && out_is_terminal;
  style.colour_err = colours && isatty(STDERR_FILENO) == 1;
  if (out_is_terminal) style.width = std::max(40, terminal_width(STDOUT_FILENO));
  return Console(stdout, stderr, style);
}

void Console::out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), out_); }

void Console::line(std::string_view text) {
  out(text);
  out("\n");
}

void Console::aside(std::string_view text) {
  std::fflush(out_);
  const std::string whole = fmt::format("{}\n", text);
  std::fwrite(whole.data(), 1, whole.size(), err_);
}

void Console::note(std::string_view sentence) { this->sentence(Paint::kPlain, "", sentence); }

void Console::warning(std::string_view sentence) {
  this->sentence(Paint::kWarning, "warning: ", sentence);
}

void Console::error(std::string_view sentence) { this->sentence(Paint::kBad, "", sentence); }

void Console::error(ErrorKind kind, std::string_view sentence, bool as_json) {
  if (as_json) {
    const nlohmann::ordered_json object = {
        {"error", {{"kind", error_kind_name(kind)}, {"message", sentence}}}};
    line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  error(sentence);
}

void Console::sentence(Paint paint, std::string_view label, std::string_view text) {
  std::fflush(out_);  // so that both streams on one terminal read in the order of events
  const std::string head = fmt::format("muster: {}", label);
  const std::string whole = fmt::format("{}{}\n", paint_text(style_.colour_err, paint, head), text);
  std::fwrite(whole.data(), 1, whole.size(), err_);
}

std::string Console::painted(Paint paint, std::string_view text) const {
  return paint_text(style_.colour_out, paint, text);
}

Status Console::flush() {
  if (std::fflush(out_) != 0 || std::ferror(out_) != 0) {
    return io_error(errno, "cannot write to standard output");
  }
  return {};
}

}  // namespace muster::cli
