#include "muster/config/foreign_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

namespace muster::config {
namespace {

struct Entry {
  std::string_view ours;
  std::array<std::string_view, 10> theirs;  // without _ and -, in lower case; some as whole keys
};

// Of PyTorch and its trainers, Keras, XGBoost and the like, and of those who write both down.
constexpr Entry kOptions[] = {
    {"optimizer.lr", {"learningrate", "baselr", "initiallr", "initlr", "lrate", "maxlr", "eta"}},
    {"passes",
     {"epochs", "epoch", "numepochs", "nepochs", "maxepochs", "numtrainepochs", "totalepochs"}},
    {"steps",
     {"iterations", "maxsteps", "numsteps", "maxiters", "numiters", "maxiterations",
      "numiterations", "totalsteps", "trainsteps", "iters"}},
    {"batch",
     {"batchsize", "globalbatchsize", "trainbatchsize", "minibatchsize", "bs", "globalbatch"}},
    {"eval.batch", {"evalbatchsize", "perdeviceevalbatchsize", "testbatchsize", "valbatchsize"}},
    {"seed", {"randomseed", "manualseed", "randomstate", "rngseed"}},
    {"data.loader.threads",
     {"numworkers", "dataloadernumworkers", "dataworkers", "loaderworkers", "dataloaderworkers"}},
    {"data.loader.ahead", {"prefetch", "prefetchfactor", "dataloaderprefetchfactor"}},
    {"data.order", {"shuffle", "shuffledata"}},
    {"data.train", {"dataset", "traindata", "trainset", "trainingdata", "traindataset"}},
    {"data.test",
     {"testdata", "testset", "testdataset", "valdata", "valset", "valdataset", "validationdata",
      "evaldata", "evaldataset", "validation"}},
    {"optimizer.weight_decay", {"wd", "l2reg", "decay", "weightdecay"}},
    {"optimizer.eps", {"epsilon", "adamepsilon"}},
    {"optimizer.beta1", {"betas", "adambeta1"}},
    {"optimizer.beta2", {"adambeta2"}},
    {"optimizer.kind",
     {"optim", "optimizertype", "optimizername", "solver", "optimizer.type", "optimizer.name"}},
    {"optimizer.nesterov", {"usenesterov"}},
    {"optimizer.clip.norm",
     {"maxgradnorm", "gradclip", "clipgradnorm", "clipnorm", "gradientclipval", "gradclipnorm",
      "clipgrad", "maxnorm", "gradientclipping", "globalclipnorm"}},
    {"optimizer.clip.value", {"clipvalue", "clipgradvalue"}},
    {"optimizer.schedule", {"scheduler", "lrscheduler", "lrschedule", "schedule"}},
    {"optimizer.schedule.kind",
     {"lrschedulertype", "schedulertype", "decaytype", "optimizer.schedule.type",
      "optimizer.schedule.name"}},
    {"optimizer.schedule.warmup",
     {"warmupsteps", "numwarmupsteps", "warmupiters", "warmupratio", "warmupepochs"}},
    {"optimizer.schedule.final", {"minlr", "etamin", "minlrrate", "endlr"}},
    {"optimizer.schedule.factor", {"gamma", "lrdecay", "lrgamma"}},
    {"optimizer.schedule.every",
     {"stepsize", "lrstepsize", "decaysteps", "milestones", "lrmilestones"}},
    {"optimizer.schedule.steps", {"tmax", "totaldecaysteps"}},
    {"model.loss", {"criterion", "lossfn", "lossfunction", "objective"}},
    {"model.zoo",
     {"arch", "architecture", "modelname", "modeltype", "network", "model.name", "model.type"}},
    {"model.layers", {"modules", "sequential"}},
    {"model.file", {"modelfile", "modelpath", "pt2", "model.path"}},
    {"model.init_from",
     {"pretrained", "pretrainedmodel", "finetunefrom", "loadfrom", "initcheckpoint"}},
    {"model.freeze", {"frozen", "freezelayers"}},
    {"precision", {"dtype", "fp16", "bf16", "amp", "mixedprecision", "half"}},
    {"device", {"accelerator", "usecpu", "nocuda", "gpu", "cuda"}},
    {"runs",
     {"outputdir", "outdir", "savedir", "logdir", "logsdir", "loggingdir", "defaultrootdir",
      "workdir", "modeldir", "checkpointdir"}},
    {"name", {"runname", "experimentname", "jobname", "projectname"}},
    {"time", {"maxtime", "timelimit", "walltime"}},
    {"track.tensorboard", {"reportto", "logger", "tensorboarddir"}},
    {"track.every",
     {"logevery", "logeverynsteps", "loggingsteps", "loggingstrategy", "loginterval", "logfreq",
      "printfreq"}},
    {"eval.every",
     {"evalsteps", "evalevery", "evalinterval", "evaluationstrategy", "evalstrategy", "valinterval",
      "valcheckinterval", "checkvaleverynepoch", "evalfreq"}},
    {"checkpoint.every",
     {"savesteps", "saveevery", "saveinterval", "savefreq", "checkpointevery", "checkpointinterval",
      "savestrategy", "everynepochs", "checkpointfreq", "snapshotevery"}},
    {"checkpoint.keep", {"savetotallimit", "savetopk", "maxtokeep", "keeplast"}},
    {"checkpoint.best", {"savebestonly", "loadbestmodelatend", "savebest"}},
    {"best_by", {"monitor", "metricforbestmodel", "evalmetric"}},
    {"early_stop", {"earlystopping", "earlystop"}},
    {"early_stop.patience", {"earlystoppingpatience", "earlystoppingrounds"}},
    {"early_stop.least", {"mindelta", "earlystoppingthreshold"}},
    {"threads", {"numthreads", "nthreads", "nthread", "njobs", "numcpus", "intraopthreads"}},
};

struct Other {
  std::string_view hint;
  std::array<std::string_view, 10> theirs;
};

constexpr Other kOthers[] = {
    {"how many workers train is no part of the job: muster train JOB --workers N",
     {"worldsize", "nprocpernode", "numprocesses", "nnodes", "numnodes", "ngpus", "devices",
      "numreplicas", "nproc", "numproc"}},
    {"hosts are no part of the job: muster train JOB --hosts FILE",
     {"hostfile", "hosts", "masteraddr", "masterport", "rank", "localrank", "noderank"}},
    {"there is no accumulation to set: batch is the global batch, cut into lanes, and a worker "
     "computes its lanes one after the other",
     {"gradientaccumulationsteps", "accumulategradbatches", "gradaccum", "accumsteps",
      "accumulationsteps", "gradaccumsteps", "backwardpassesperstep"}},
    {"batch is the global batch, of all workers together; lanes is in how many equal parts it is "
     "computed",
     {"microbatchsize", "microbatch", "batchsizeperdevice", "localbatchsize",
      "perdevicetrainbatchsize", "perdevicebatchsize"}},
    {"a run continues with `muster resume RUN`; model.init_from begins with the weights of another",
     {"resume", "resumefrom", "resumefromcheckpoint", "ckptpath", "initialepoch",
      "checkpointpath"}},
    {"a job gives the same bits each time; there is nothing to set",
     {"deterministic", "cudnndeterministic", "cudnnbenchmark", "benchmark", "fulldeterminism",
      "usedeterministicalgorithms"}},
    {"a pass is all of data.train; steps instead of passes ends a job in the middle of one",
     {"stepsperepoch", "limittrainbatches", "maxtrainsamples"}},
    {"data.test names data of its own; limit in data.train and data.test uses only so many samples",
     {"validationsplit", "valsplit", "testsplit", "valfraction"}},
    {"no sample is left out: a batch may be of two passes", {"droplast", "dataloaderdroplast"}},
    {"options of the training are at the top level of a job: passes, batch, lanes, optimizer, ...",
     {"trainer", "training", "trainingargs", "trainingarguments", "hyperparameters", "hparams",
      "params"}},
};

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

template <typename Entries>
auto find(const Entries& entries, std::string_view name) {
  return std::ranges::find_if(entries, [&](const auto& entry) {
    return !name.empty() && std::ranges::find(entry.theirs, name) != entry.theirs.end();
  });
}

}  // namespace

ForeignName foreign_name(std::string_view key) {
  const size_t dot = key.rfind('.');
  const auto last = dot == std::string_view::npos ? key : key.substr(dot + 1);
  for (const auto& theirs : {plain(key), plain(last)}) {
    if (const auto* option = find(kOptions, theirs); option != std::end(kOptions)) {
      return {std::string(option->ours), ""};
    }
    if (const auto* other = find(kOthers, theirs); other != std::end(kOthers)) {
      return {"", std::string(other->hint)};
    }
  }
  return {};
}

std::vector<std::string_view> foreign_names() {
  std::vector<std::string_view> names;
  const auto add = [&](const auto& entries) {
    for (const auto& entry : entries) {
      for (const auto name : entry.theirs) {
        if (!name.empty()) names.push_back(name);
      }
    }
  };
  add(kOptions);
  add(kOthers);
  return names;
}

}  // namespace muster::config
