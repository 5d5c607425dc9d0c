// What a server answers to those who read: from one shard, if it may be read now.
//
// Who asked, and the epoch, are added by whoever sends it.
#pragma once

#include "muster/ps/table_data.h"
#include "muster/ps/wire.h"

namespace muster::ps {

// Whether it has to wait for the shard's clock.
template <typename Request>
bool is_early(const Request& request, const TableData& data) {
  return data.clock() < request.clock;
}
// Once the others have begun another era, the clock that was asked for never comes.
inline bool is_early(const WholeRequest& request, const TableData& data) {
  return data.era() <= request.era && data.clock() < request.clock;
}

// `data`: null if it is not served here.
ReadAnswer answer_to(const ReadRequest& request, TableData* data);
WholeAnswer answer_to(const WholeRequest& request, TableData* data);
OrderAnswer answer_to(const OrderRequest& request, TableData* data);

}  // namespace muster::ps
