// Finds the objects that match a Glob in a tree of folders, listing only folders that can hold
// some.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/store/glob.h"
#include "muster/store/store.h"

namespace muster::store {

struct FolderEntry {
  std::string name;        // without the folder
  bool is_folder = false;  // and not a link to one: ** must not run in circles
  // What is known of it already, so that Tree::look_at need not be called.
  std::optional<Object> object;
};

struct Tree {
  // What a folder contains; nothing if there is no such folder. `folder` is "" or ends with '/'.
  std::function<Result<std::vector<FolderEntry>>(const std::string& folder)> list_folder;
  // The object of this path; nothing if there is none, or it is a folder.
  std::function<Result<std::optional<Object>>(const std::string& path)> look_at;
};

// By name bytewise. Each call of `tree` is made by `make`. After `stop` was requested it returns an
// error of kind kInterrupted, at the next call of `tree` at the latest.
Result<std::vector<Object>> walk(const Glob& glob, const Tree& tree, const MakeRequest& make,
                                 const std::stop_token& stop);

}  // namespace muster::store
