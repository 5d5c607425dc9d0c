#include "muster/base/text.h"
#include "muster/config/document.h"
#include "muster/config/table.h"

namespace muster::config {
namespace {

constexpr const char* kIntroduction = R"(# The job file

<!-- Generated from muster/config/table.cc; do not edit. Run the tests of config with MUSTER_UPDATE_DOCS=1. -->

A job file describes one training run in YAML:

```yaml
muster: 1
name: lenet-mnist
seed: 7
model: { zoo: lenet }
data:
  train: { format: idx, images: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz }
  test: { format: idx, images: t10k-images-idx3-ubyte.gz, labels: t10k-labels-idx1-ubyte.gz }
batch: 128
lanes: 8
passes: 3
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9, schedule: { kind: cosine, warmup: 100 } }
```

Every option has a default, but a job must name a model, training data, and its end (`passes`,
`steps` or `time`). An unknown option, a value out of range, and an option that has no effect are
errors that say where and what to do.

**Where values come from.** Later wins: the default, the file, the environment, the command line.
`optimizer.lr` is set by the variable `MUSTER_OPTIMIZER_LR`, or by `-s optimizer.lr=0.1`. On the command
line also whole sections (`-s 'optimizer={kind: adam, lr: 0.001}'`) and parts of `model.args`,
`data.train.args` and `data.test.args` (`-s model.args.width=64`). Values are YAML; text needs no quotes
there.

**Paths** in a file are relative to the file's own directory, on the command line and in the environment
to the current one.

**Times** are written `300ms`, `90s`, `5m`, `2h` or `1d`; a bare number is seconds. **Intervals** are
written `500 steps`, `1 pass`, `0.5 passes`, as a time, or `never`. **Bytes** are a bare number, or
written `64kB`, `1MB`, `1GB` (powers of 1000) or `512KiB`, `1MiB`, `1GiB` (powers of 1024).

**What a job file cannot hold:** anchors, aliases and tags, a key twice, tabs as indentation, more than
one document, more than 64 levels, more than 1 MiB.

The same in the terminal: `muster config explain optimizer.lr`. For editors there is a JSON schema,
[job.schema.json](job.schema.json); `muster config schema` prints it.
)";

// Inside a table a bar would end the cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
}

std::string row(const Option& option) {
  std::string meaning = option.doc;
  if (option.only) {
    const auto& values = option.only->values;
    meaning += fmt::format(" Only with `{}` {}.", option.only->key,
                           values.empty() ? "registered in C++" : join_words(values, "or"));
  }
  return fmt::format("| `{}` | {} | `{}` | {} |\n", option.name(), cell(option.type_text()),
                     cell(option.get(Job()).to_line()), cell(meaning));
}

}  // namespace

std::string reference_page() {
  const Table& table = option_table();
  std::string page = kIntroduction;
  for (const auto& section : table.sections) {
    std::string rows;
    for (const auto& name : table.names_in(section.key)) {
      const std::string key = section.key.empty() ? name : section.key + "." + name;
      if (const Option* option = table.find(key)) rows += row(*option);
    }
    page += section.key.empty() ? "\n## The job itself\n"
                                : fmt::format("\n## {}\n\n{}\n", section.key, section.doc);
    if (!rows.empty())
      page += "\n| option | type | default | meaning |\n|---|---|---|---|\n" + rows;
  }
  return page;
}

}  // namespace muster::config
