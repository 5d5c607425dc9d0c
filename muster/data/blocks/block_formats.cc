#include "muster/data/blocks/block_formats.h"

namespace muster::data {

std::map<std::string, BlockFormatFactory> builtin_block_formats() {
  return {{"tfrecord", make_tfrecord},    {"webdataset", make_webdataset},
          {"jsonl", make_jsonl},          {"csv", make_csv_blocks},
          {"libsvm", make_libsvm_blocks}, {"mds", make_mds},
          {"parquet", make_parquet},      {"arrow", make_arrow}};
}

}  // namespace muster::data
