// A section of the table of options, to which lines are added. Internal to config.
#pragma once

#include <string>
#include <utility>

#include "muster/config/table.h"

namespace muster::config {

// A struct of Job under its key: add() takes pointers to its members.
template <typename S>
class Section {
 public:
  Section(Table& table, std::string key, std::string doc, Access<S> access)
      : table_(table), key_(std::move(key)), access_(std::move(access)) {
    table_.sections.push_back({key_, std::move(doc)});
  }

  template <typename T>
  Option& add(const std::string& name, T S::* member, std::string doc) {
    Option& option = table_.options.emplace_back();
    option.key = key_.empty() ? name : key_ + "." + name;
    option.field =
        Access<T>([access = access_, member](Job& job) -> T& { return access(job).*member; });
    option.doc = std::move(doc);
    return option;
  }

  template <typename T>
  Section<T> section(const std::string& name, T S::* member, std::string doc) const {
    return Section<T>(table_, key_.empty() ? name : key_ + "." + name, std::move(doc),
                      [access = access_, member](Job& job) -> T& { return access(job).*member; });
  }

  std::string key(const std::string& name) const { return key_ + "." + name; }

 private:
  Table& table_;
  std::string key_;
  Access<S> access_;
};

// The sections `sync`, in table_sync.cc, and `tables`, in table_tables.cc.
void add_sync(Section<SyncOptions> s);
void add_tables(Section<TablesOptions> s);

}  // namespace muster::config
