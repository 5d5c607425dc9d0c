// The tables of a job, as its file describes them.
#pragma once

#include "muster/config/job.h"
#include "muster/ps/net/control.h"

namespace muster::ps {

// job.tables.width must not be 0.
TablesSetup setup_of(const config::Job& job);

}  // namespace muster::ps
