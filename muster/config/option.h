// One option of a job: its name, what it may be, what it is for, and where in Job it lives.
//
// Everything a person meets (errors, `muster config explain`, the schema, docs/job-file.md) is
// derived from these; table.cc lists them all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/node.h"

namespace muster::config {

// The field itself; its type says how a value is read.
template <typename T>
using Access = std::function<T&(Job&)>;
using Field = std::variant<Access<int64_t>, Access<uint64_t>, Access<double>, Access<bool>,
                           Access<std::string>, Access<std::vector<std::string>>,
                           Access<std::vector<double>>, Access<Every>, Access<Node>>;

// How the field is written where its type alone does not say.
enum class Form {
  kPlain,
  kDuration,   // double: "90s"
  kBytes,      // int64_t: "1MB"
  kPath,       // std::string: relative to the job file, stored absolute
  kPathOrRun,  // std::string: a path if there is a slash in it, otherwise the name of a run
  kAddress,    // std::string: a URL, stored as it is; else a path
  kOneOrMany,  // std::vector<double>: a number, or a list of them
  kList,       // Node: a list, or nothing
  kMap         // Node: a map, or nothing
};

// An option that means something only while another one has one of these values.
struct OnlyWith {
  std::string key;
  std::vector<std::string> values;  // empty: only with a value that is registered in C++
};

struct Option {
  std::string key;  // "optimizer.schedule.warmup"
  Field field;
  std::string doc;  // a sentence or two
  Form form = Form::kPlain;
  std::string unit;                  // "steps", for people
  std::vector<std::string> choices;  // text: what it may be; empty: anything
  bool open = false;                 // besides the choices, a name registered in C++
  std::optional<double> least, above, most, below;
  std::optional<OnlyWith> only;
  std::string example;  // a value, as one would write it; empty: the default is example enough

  // For the table: each returns the option itself.
  Option& in(std::string unit);
  Option& as(Form form);
  Option& at_least(double bound);
  Option& more_than(double bound);
  Option& at_most(double bound);
  Option& less_than(double bound);
  Option& one_of(std::vector<std::string> choices);
  Option& or_registered();
  Option& only_with(std::string key, std::vector<std::string> values);
  Option& like(std::string example);

  // "whole number, at least 1", "one of sgd, adam", "duration (90s, 5m, 2h)".
  std::string type_text() const;
  // "at least 0 and below 1"; empty: any.
  std::string range_text() const;
  // The last part of the key: "warmup".
  std::string_view name() const;
  // MUSTER_OPTIMIZER_SCHEDULE_WARMUP
  std::string environment_name() const;
  bool is_text() const { return std::holds_alternative<Access<std::string>>(field); }
  bool is_tree() const { return std::holds_alternative<Access<Node>>(field); }

  // Sets the field from YAML; the error names the key, the place, and what would be right. Paths
  // are taken relative to `base`, a directory; "" leaves them as they are.
  Status set(Job& job, const Node& value, const std::string& base) const;
  // The value as YAML, such that set() restores exactly this value.
  Node get(const Job& job) const;
};

}  // namespace muster::config
