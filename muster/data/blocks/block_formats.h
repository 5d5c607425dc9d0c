// The formats of blocks that come with Muster, and the data sets beside them that are read where
// they lie. muster/data/README.md has the options of each.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/dataset.h"

namespace muster::data {

// TFRecord files of tf.Example messages, gzipped or not.
Result<std::unique_ptr<BlockFormat>> make_tfrecord(const config::SourceOptions& options);
// Tar files in which files of one name, up to the first dot, are one sample.
Result<std::unique_ptr<BlockFormat>> make_webdataset(const config::SourceOptions& options);
// One JSON object per line.
Result<std::unique_ptr<BlockFormat>> make_jsonl(const config::SourceOptions& options);
// The formats csv and libsvm of formats.h, by ranges of lines.
Result<std::unique_ptr<BlockFormat>> make_csv_blocks(const config::SourceOptions& options);
Result<std::unique_ptr<BlockFormat>> make_libsvm_blocks(const config::SourceOptions& options);
// The shards of MosaicML's MDS format.
Result<std::unique_ptr<BlockFormat>> make_mds(const config::SourceOptions& options);

// Columns of Parquet files, and of Arrow's IPC format. Error (kMachine): the plugin that reads them
// is not there (column_plugin.h).
Result<std::unique_ptr<BlockFormat>> make_parquet(const config::SourceOptions& options);
Result<std::unique_ptr<BlockFormat>> make_arrow(const config::SourceOptions& options);

// All of them by the name of the format in a job.
std::map<std::string, BlockFormatFactory> builtin_block_formats();

// Token ids as they lie in files (.bin, .npy, Megatron's .bin with .idx): sample i is the tokens of
// one window, its target the same window one token later.
Result<std::unique_ptr<Dataset>> open_tokens(const config::SourceOptions& options);
// One directory per class, with images in it.
Result<std::unique_ptr<Dataset>> open_image_folder(const config::SourceOptions& options);
// An LMDB environment with Caffe's Datum messages, in the order of its keys.
Result<std::unique_ptr<Dataset>> open_lmdb(const config::SourceOptions& options);

}  // namespace muster::data
