#include "muster/ps/answers.h"

namespace muster::ps {

ReadAnswer answer_to(const ReadRequest& request, TableData* data) {
  ReadAnswer answer;
  if (data == nullptr) return answer;
  const bool then = request.exactly && data->knows(request.table, request.clock);
  answer.served = Served::kYes;
  answer.clock = then ? request.clock : data->clock();
  const size_t width = data->table(request.table).options().width;
  answer.weights = Bytes::filled<float>(request.keys.size() * width, [&](float* weights) {
    data->read(request.table, request.keys, answer.clock, weights);
  });
  return answer;
}

WholeAnswer answer_to(const WholeRequest& request, TableData* data) {
  WholeAnswer answer;
  if (data == nullptr) return answer;
  answer.served = Served::kYes;
  answer.clock = data->clock();
  answer.era = data->era();
  if (request.contents) {
    std::string contents;
    data->save_rows(contents);
    answer.contents = Bytes(std::move(contents));
  } else {
    answer.hash = data->hash();
  }
  return answer;
}

OrderAnswer answer_to(const OrderRequest& request, TableData* data) {
  OrderAnswer answer;
  if (data == nullptr) return answer;
  answer.served = Served::kYes;
  answer.clock = data->clock();
  answer.view = data->order().view(request.worker, request.from, request.results);
  return answer;
}

}  // namespace muster::ps
