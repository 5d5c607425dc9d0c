#include "muster/config/option.h"

#include <algorithm>
#include <filesystem>

#include "muster/base/text.h"
#include "muster/config/scalar.h"
#include "muster/config/source.h"
#include "muster/config/units.h"

namespace muster::config {
namespace {

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};
template <typename... F>
Overload(F...) -> Overload<F...>;

Error wrong(const Option& option, const Node& value, std::string_view expected) {
  return value.error("{} must be {}, not {}", option.key, expected, value.described());
}

Status check_range(const Option& option, const Node& value, double number) {
  if ((option.least && number < *option.least) || (option.above && number <= *option.above) ||
      (option.most && number > *option.most) || (option.below && number >= *option.below)) {
    return value.error("{} must be {}, not {}", option.key, option.range_text(), value.to_line());
  }
  return {};
}

Status check_choice(const Option& option, const Node& value, const std::string& text) {
  if (option.choices.empty() || option.open) return {};
  if (text.empty() && option.get(Job()).text().empty()) return {};  // not chosen
  if (std::ranges::find(option.choices, text) != option.choices.end()) return {};
  return value.error("{} must be {}{}, not '{}'{}", option.key,
                     option.choices.size() > 1 ? "one of " : "", join_words(option.choices, "or"),
                     text, did_you_mean(text, option.choices));
}

std::string absolute(const std::string& path, const std::string& base) {
  if (path.empty() || base.empty()) return path;
  return (std::filesystem::path(base) / path).lexically_normal().string();
}

Status read(const Option& o, const Node& value, const std::string&, int64_t& field) {
  if (o.form == Form::kBytes) {
    const auto bytes = value.is_scalar() ? parse_bytes(value.text()) : std::nullopt;
    if (!bytes) return wrong(o, value, "a number of bytes like 1048576, 1MB or 512KiB");
    field = *bytes;
  } else {
    MUSTER_TRY(field, value.as_int(o.key));
  }
  return check_range(o, value, static_cast<double>(field));
}

Status read(const Option& o, const Node& value, const std::string&, uint64_t& field) {
  const auto number = value.is_scalar() ? parse_uint(value.text()) : std::nullopt;
  if (!number) return wrong(o, value, "a whole number from 0 to 18446744073709551615");
  field = *number;
  return {};
}

Status read(const Option& o, const Node& value, const std::string&, double& field) {
  if (o.form == Form::kDuration) {
    const auto seconds = value.is_scalar() ? parse_duration(value.text()) : std::nullopt;
    if (!seconds) return wrong(o, value, "a time like 90s, 5m or 2h");
    field = *seconds;
  } else {
    MUSTER_TRY(field, value.as_number(o.key));
  }
  return check_range(o, value, field);
}

Status read(const Option& o, const Node& value, const std::string&, bool& field) {
  MUSTER_TRY(field, value.as_bool(o.key));
  return {};
}

Status read(const Option& o, const Node& value, const std::string& base, std::string& field) {
  MUSTER_TRY(field, value.as_string(o.key));
  // A text ends up in file names, lines of a log and other programs' arguments.
  if (field.find('\0') != std::string::npos) return wrong(o, value, "without zero bytes");
  const bool is_run = o.form == Form::kPathOrRun && field.find('/') == std::string::npos;
  const bool is_elsewhere = o.form == Form::kAddress && is_url(field);
  if (o.form != Form::kPlain && !is_run && !is_elsewhere) field = absolute(field, base);
  return check_choice(o, value, field);
}

Status read(const Option& o, const Node& value, const std::string&,
            std::vector<std::string>& field) {
  field.clear();
  if (value.is_scalar()) {
    field.push_back(value.text());
    return {};
  }
  if (!value.is_list()) return wrong(o, value, "a list of texts");
  for (size_t i = 0; i < value.items().size(); ++i) {
    MUSTER_TRY(field.emplace_back(), value.items()[i].as_string(fmt::format("{}[{}]", o.key, i)));
  }
  return {};
}

Status read(const Option& o, const Node& value, const std::string&, std::vector<double>& field) {
  field.clear();
  if (o.form == Form::kOneOrMany) {
    if (value.is_scalar()) {
      MUSTER_TRY(field.emplace_back(), value.as_number(o.key));
      return check_range(o, value, field.back());
    }
    if (!value.is_list() || value.items().empty()) {
      return wrong(o, value, "a number, or a list of numbers");
    }
  }
  if (!value.is_list()) return wrong(o, value, "a list of numbers");
  for (size_t i = 0; i < value.items().size(); ++i) {
    const Node& item = value.items()[i];
    MUSTER_TRY(field.emplace_back(), item.as_number(fmt::format("{}[{}]", o.key, i)));
    MUSTER_RETURN_IF_ERROR(check_range(o, item, field.back()));
  }
  return {};
}

Status read(const Option& o, const Node& value, const std::string&, Every& field) {
  const auto every = value.is_scalar() ? parse_every(value.text()) : std::nullopt;
  if (!every) return wrong(o, value, "like 500 steps, 1 pass, 90s or never");
  field = *every;
  return {};
}

Status read(const Option& o, const Node& value, const std::string&, Node& field) {
  const bool right = o.form == Form::kList ? value.is_list() : value.is_map();
  if (!right && !value.is_null()) return wrong(o, value, o.type_text());
  field = value;
  return {};
}

Node numbers_node(const std::vector<double>& values) {
  std::vector<Node> items;
  for (const double value : values) items.push_back(Node::scalar(number_text(value)));
  return Node::list(std::move(items));
}

Node texts_node(const std::vector<std::string>& values) {
  std::vector<Node> items;
  for (const auto& value : values) items.push_back(Node::scalar(value, {}, true));
  return Node::list(std::move(items));
}

}  // namespace

Option& Option::in(std::string unit_name) {
  unit = std::move(unit_name);
  return *this;
}

Option& Option::as(Form new_form) {
  form = new_form;
  return *this;
}

Option& Option::at_least(double bound) {
  least = bound;
  return *this;
}

Option& Option::more_than(double bound) {
  above = bound;
  return *this;
}

Option& Option::at_most(double bound) {
  most = bound;
  return *this;
}

Option& Option::less_than(double bound) {
  below = bound;
  return *this;
}

Option& Option::one_of(std::vector<std::string> values) {
  choices = std::move(values);
  return *this;
}

Option& Option::or_registered() {
  open = true;
  return *this;
}

Option& Option::only_with(std::string other, std::vector<std::string> values) {
  only = OnlyWith{std::move(other), std::move(values)};
  return *this;
}

Option& Option::like(std::string value) {
  example = std::move(value);
  return *this;
}

std::string Option::range_text() const {
  const auto bound = [&](double value) {
    if (form == Form::kBytes) return bytes_text(static_cast<int64_t>(value));
    return form == Form::kDuration ? duration_text(value) : number_text(value);
  };
  if (least && least == most) return bound(*least);
  std::vector<std::string> parts;
  if (least) parts.push_back("at least " + bound(*least));
  if (above) parts.push_back("above " + bound(*above));
  if (most) parts.push_back("at most " + bound(*most));
  if (below) parts.push_back("below " + bound(*below));
  return join_words(parts);
}

std::string Option::type_text() const {
  const auto text = [&](const Access<std::string>&) -> std::string {
    if (form == Form::kPath) return "path";
    if (form == Form::kAddress) return "path or URL";
    if (form == Form::kPathOrRun) return "path or name of a run";
    if (choices.empty()) return "text";
    std::vector<std::string> all = choices;
    if (open) all.emplace_back("a registered name");
    return join_words(all, "or");
  };
  std::string type = std::visit(
      Overload{
          [&](const Access<int64_t>&) -> std::string {
            return form == Form::kBytes ? "bytes (1048576, 1MB, 512KiB)" : "whole number";
          },
          [](const Access<uint64_t>&) -> std::string { return "whole number, at least 0"; },
          [&](const Access<double>&) -> std::string {
            return form == Form::kDuration ? "time (90s, 5m, 2h)" : "number";
          },
          [](const Access<bool>&) -> std::string { return "true or false"; }, text,
          [](const Access<std::vector<std::string>>&) -> std::string { return "list of texts"; },
          [&](const Access<std::vector<double>>&) -> std::string {
            return form == Form::kOneOrMany ? "number, or list of numbers" : "list of numbers";
          },
          [](const Access<Every>&) -> std::string {
            return "interval (500 steps, 1 pass, 90s, never)";
          },
          [&](const Access<Node>&) -> std::string {
            return form == Form::kList ? "a list" : "a map";
          }},
      field);
  if (const std::string range = range_text(); !range.empty()) type += ", " + range;
  if (!unit.empty()) type += ", in " + unit;
  return type;
}

std::string_view Option::name() const {
  return std::string_view(key).substr(key.rfind('.') + 1);  // npos + 1 is 0
}

std::string Option::environment_name() const {
  std::string text = "MUSTER_" + key;
  for (char& c : text) c = c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return text;
}

Status Option::set(Job& job, const Node& value, const std::string& base) const {
  return std::visit([&](const auto& access) { return read(*this, value, base, access(job)); },
                    field);
}

Node Option::get(const Job& job) const {
  // Reading goes through the same access as writing, which wants a Job it may change; it does not.
  const auto value = [&](const auto& access) -> const auto& {
    return access(const_cast<Job&>(job));
  };
  return std::visit(
      Overload{[&](const Access<int64_t>& a) {
                 return Node::scalar(form == Form::kBytes ? bytes_text(value(a))
                                                          : fmt::format("{}", value(a)));
               },
               [&](const Access<uint64_t>& a) { return Node::scalar(fmt::format("{}", value(a))); },
               [&](const Access<double>& a) {
                 return Node::scalar(form == Form::kDuration ? duration_text(value(a))
                                                             : number_text(value(a)));
               },
               [&](const Access<bool>& a) { return Node::scalar(value(a) ? "true" : "false"); },
               [&](const Access<std::string>& a) { return Node::scalar(value(a), {}, true); },
               [&](const Access<std::vector<std::string>>& a) { return texts_node(value(a)); },
               [&](const Access<std::vector<double>>& a) {
                 const auto& numbers = value(a);
                 return form == Form::kOneOrMany && numbers.size() == 1
                            ? Node::scalar(number_text(numbers.front()))
                            : numbers_node(numbers);
               },
               [&](const Access<Every>& a) { return Node::scalar(every_text(value(a))); },
               [&](const Access<Node>& a) { return value(a); }},
      field);
}

}  // namespace muster::config
