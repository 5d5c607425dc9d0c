// `muster data`: looks at the data of a job without training.
//
//   index   makes the indexes of data that is read by blocks, for jobs that name their directory
//           (data.index); those that are there already are not made again
//   info    how much there is, how it is cut into blocks, and the order it would be read in
//   check   reads everything: the hash of each block, and each sample
//   pack    rewrites it into files that are read by blocks (muster/data/pack/pack.h)
//
// A program of its own, muster-data, because the libraries that read data (libcurl, libjpeg-turbo,
// libpng, LMDB) take longer to load than `muster` takes to answer. Only formats that come with
// Muster are known here.
#pragma once

#include "tools/muster/commands.h"

namespace muster::cli {

Outcome index_data(const DataIndexArguments& arguments, Context& context);
Outcome show_data(const DataInfoArguments& arguments, Context& context);
Outcome check_data(const DataCheckArguments& arguments, Context& context);
Outcome pack_data(const DataPackArguments& arguments, Context& context);

}  // namespace muster::cli
