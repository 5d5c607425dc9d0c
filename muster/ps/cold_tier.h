// What the tables of one server share that write rows to disk (tiered_rows.h): the database, its
// failure, and who gives memory to whom.
//
// A failure of the disk is kept here. From then on what tables hold is of no use, so nothing of it
// may leave the server (Server looks at failure() before it sends).
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "muster/base/result.h"
#include "muster/ps/cold_rows.h"

namespace muster::ps {

class TieredRows;

class ColdTier {
 public:
  // `rows` must outlive it, and it all tables.
  explicit ColdTier(ColdRows& rows) : rows_(rows) {}
  ColdTier(const ColdTier&) = delete;
  ColdTier& operator=(const ColdTier&) = delete;

  ColdRows& rows() { return rows_; }

  // The first one.
  const std::optional<Error>& failure() const { return failure_; }
  void note(Status status) {
    if (!status.ok() && !failure_) failure_ = std::move(status).error();
  }

  struct Counts {
    uint64_t written = 0;    // rows
    uint64_t fetched = 0;    // rows that came back before they were needed
    uint64_t late = 0;       // keys that were looked up on disk when they were needed
    uint64_t in_memory = 0;  // rows
    uint64_t on_disk = 0;    // rows that are not in memory
  };
  Counts counts() const;
  void count_written(size_t rows) { counts_.written += rows; }
  void count_fetched(size_t rows) { counts_.fetched += rows; }
  void count_late(size_t keys) { counts_.late += keys; }

  // Tables, by a number that join() gives.
  size_t join(TieredRows& part);
  void moved(size_t number, TieredRows& part) { parts_[number] = &part; }
  void leave(size_t number) { parts_[number] = nullptr; }

  // One that has more than twice the memory of `needy`; null: `needy` has its share. All of them
  // are looked at only if it has none.
  TieredRows* donor_for(const TieredRows& needy);

 private:
  ColdRows& rows_;
  std::optional<Error> failure_;
  Counts counts_;
  std::vector<TieredRows*> parts_;
  size_t next_ = 0;  // where donor_for() goes on
};

}  // namespace muster::ps
