// What a launcher tells the workers of a run, for hosts that do not share its run directory: enough
// to make a directory of the same run (track/run_identity.h). The coordinator passes it on.
#pragma once

#include <string>

namespace muster {

struct RunOffer {
  std::string run;              // CopyIndex::run; empty: all workers share the launcher's directory
  std::string attempt;          // random, drawn each time that the run is started or resumed
  std::string job;              // the text of job.yaml
  bool has_checkpoint = false;  // the launcher's directory has one
  bool operator==(const RunOffer&) const = default;
};

}  // namespace muster
