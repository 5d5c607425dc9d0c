// The options of the section `tables`: rows that are looked up by a key. See table.cc.
#include "muster/config/section.h"

namespace muster::config {

void add_tables(Section<TablesOptions> s) {
  s.add("width", &TablesOptions::width,
        "How many numbers each row has. Models with ids (model.zoo: dlrm, deepfm, wide-deep, "
        "two-tower) look up a row for each id; a row is made when its id is first seen. 0: the job "
        "has no rows.")
      .at_least(0)
      .at_most(4096);
  s.add("optimizer", &TablesOptions::optimizer,
        "How rows are updated. Only rows that a batch has used are. row_adagrad has one number of "
        "state for each row, adagrad one for each weight, adam and ftrl two.")
      .one_of({"sgd", "adagrad", "row_adagrad", "adam", "ftrl"});
  s.add("lr", &TablesOptions::lr,
        "The learning rate of rows. It follows optimizer.schedule; that of ftrl never changes.")
      .more_than(0);
  s.add("eps", &TablesOptions::eps, "Added to the denominator.")
      .more_than(0)
      .only_with("tables.optimizer", {"adagrad", "row_adagrad", "adam"});
  s.add("beta1", &TablesOptions::beta1, "Decay of the mean of gradients.")
      .at_least(0)
      .less_than(1)
      .only_with("tables.optimizer", {"adam"});
  s.add("beta2", &TablesOptions::beta2, "Decay of the mean of squared gradients.")
      .at_least(0)
      .less_than(1)
      .only_with("tables.optimizer", {"adam"});
  s.add("beta", &TablesOptions::beta, "Added to the denominator.")
      .at_least(0)
      .only_with("tables.optimizer", {"ftrl"});
  s.add("l1", &TablesOptions::l1, "Weights whose accumulated gradient is smaller become zero.")
      .at_least(0)
      .only_with("tables.optimizer", {"ftrl"});
  s.add("l2", &TablesOptions::l2, "Weight decay.")
      .at_least(0)
      .only_with("tables.optimizer", {"ftrl"});
  s.add("scale", &TablesOptions::scale,
        "First weights are drawn evenly between minus this and this.")
      .at_least(0);
  s.add("staleness", &TablesOptions::staleness,
        "How many steps old rows are. 0: a step sees all updates of the step before. 1: all but "
        "those; then rows are read while the step before is computed. In any case the result does "
        "not depend on workers and servers.")
      .at_least(0)
      .at_most(64);
  s.add("admit_after", &TablesOptions::admit_after,
        "A row is made at this update of its key; those before are dropped. Most ids of a log are "
        "seen once or twice.")
      .at_least(1)
      .at_most(65535);
  s.add("admit_probability", &TablesOptions::admit_probability,
        "With which probability each update of a key that has no row counts; the others are "
        "dropped.")
      .more_than(0)
      .at_most(1);
  s.add(
       "evict_after", &TablesOptions::evict_after,
       "Rows that were not updated for this many steps are removed, and have their initial weights "
       "again. Each shard is scanned every 64 steps. 0: never.")
      .at_least(0)
      .at_most(1e9);
  s.add("most_rows", &TablesOptions::most_rows,
        "If there are more rows, those with the fewest updates are removed. Each shard has an "
        "equal part of this number, and is scanned every 64 steps; meanwhile it may have "
        "more. 0: any number.")
      .at_least(0)
      .at_most(1e15);
  s.add(
       "servers", &TablesOptions::servers,
       "How many parameter servers hold the rows. 0: the worker itself, if there is only one; else "
       "two. No effect on the result.")
      .at_least(0)
      .at_most(1024);
  s.add("copies", &TablesOptions::copies,
        "On how many servers each row is: with 2 nothing is lost if one fails. No effect on the "
        "result.")
      .at_least(1)
      .at_most(2);
  s.add("shards", &TablesOptions::shards,
        "Into how many parts the rows are cut, which servers share. The rows are the same with any "
        "number, unless some are removed (tables.evict_after, tables.most_rows); the hash of the "
        "result, and checkpoints, are not.")
      .at_least(1)
      .at_most(65536);
  s.add("memory", &TablesOptions::memory,
        "For the rows of one server, at most. Rows that need more are written to tables.disk; "
        "without that the server ends with an error, and the job with it. 0: any amount. A server "
        "of `muster coordinator` has --memory instead. No effect on the result.")
      .as(Form::kBytes)
      .at_least(0)
      .at_most(0x1p50);
  s.add(
      "disk", &TablesOptions::disk,
      "A directory for rows of a server that do not fit into tables.memory. Empty: there is none. "
      "A server of `muster coordinator` has --disk instead. A worker without servers has all rows "
      "in memory. No effect on the result.");
}

}  // namespace muster::config
