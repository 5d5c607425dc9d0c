// Machines we have met, or expect to meet, and what doctor should say about each.
#include "tools/muster/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kGigabyte = 1'000'000'000;

Findings healthy() {
  Findings findings;
  findings.machine.processor = "Some CPU";
  findings.machine.instructions = {"AVX2", "AVX-512"};
  findings.machine.cores = findings.machine.usable_cores = 8;
  findings.machine.load = 0.3;
  findings.machine.memory = 32 * kGigabyte;
  findings.machine.memory_free = 30 * kGigabyte;
  findings.disk = {"/home/me/runs", 100 * kGigabyte, 2.5, 500, ""};
  Probe probe;
  probe.torch_version = "2.15.0";
  probe.gloo = "/usr/lib/x86_64-linux-gnu/libgloo.so.0";
  probe.gflops_one_lane = 60;
  probe.gflops_all_lanes = 420;
  probe.lane_threads = 8;
  findings.probe = probe;
  return findings;
}

std::string only_advice(const Findings& findings, bool fatal) {
  const auto advice = advise(findings);
  if (advice.size() != 1) return fmt::format("{} pieces of advice", advice.size());
  EXPECT_EQ(advice[0].fatal, fatal);
  return advice[0].text;
}

TEST(Advise, NothingToSayAboutAGoodMachine) {
  EXPECT_THAT(advise(healthy()), IsEmpty());
  EXPECT_EQ(verdict({}), "This machine can train.");
}

TEST(Advise, ABusyMachine) {
  auto findings = healthy();
  findings.machine.load = 7.5;
  findings.probe->gflops_all_lanes = 70;  // no wonder, and no hint about hyper-threads
  EXPECT_THAT(only_advice(findings, false), HasSubstr("load 7.5"));
}

TEST(Advise, AContainerWithLessThanItsCores) {
  auto findings = healthy();
  findings.machine.quota = 2.5;
  findings.probe->lane_threads = 2;
  findings.probe->gflops_all_lanes = 115;
  EXPECT_THAT(only_advice(findings, false), HasSubstr("-s threads=2"));
}

TEST(Advise, HyperThreads) {
  auto findings = healthy();
  findings.probe->gflops_all_lanes = 250;
  EXPECT_THAT(only_advice(findings, false), HasSubstr("-s threads=4"));
}

TEST(Advise, AFullDisk) {
  auto findings = healthy();
  findings.disk.free_bytes = 1'000'000;
  EXPECT_THAT(only_advice(findings, true), HasSubstr("full"));
  findings.disk.free_bytes = kGigabyte / 2;
  EXPECT_THAT(only_advice(findings, false), HasSubstr("checkpoint.keep"));
}

TEST(Advise, ADiskThatCannotBeWritten) {
  auto findings = healthy();
  findings.disk = {"/mnt", 0, 0, 0, "cannot write in '/mnt': Permission denied"};
  EXPECT_THAT(only_advice(findings, true), HasSubstr("-s runs=DIR"));
}

TEST(Advise, ANetworkDisk) {
  auto findings = healthy();
  findings.disk.sync_ms = 180;
  EXPECT_THAT(only_advice(findings, false), HasSubstr("180 ms"));
}

TEST(Advise, TooLittleMemory) {
  auto findings = healthy();
  findings.machine.memory_limit = kGigabyte / 4;
  EXPECT_THAT(only_advice(findings, true), HasSubstr("container's limit"));
}

TEST(Advise, TheWrongGloo) {
  auto findings = healthy();
  findings.probe->gloo = "/opt/site-packages/torch/lib/libtorch_cpu.so";
  EXPECT_THAT(only_advice(findings, true), HasSubstr("link gloo before torch"));
}

TEST(Advise, TheGlooOfAWheelIsInADirectoryOfThatName) {
  auto findings = healthy();
  findings.probe->gloo = "/venv/site-packages/muster/bin/torch/../muster_train.libs/libgloo.so.0";
  EXPECT_THAT(advise(findings), IsEmpty());
}

TEST(Advise, WithoutAWorkerNothingCanTrain) {
  auto findings = healthy();
  findings.probe.reset();
  findings.probe_problem = "muster-worker is not there";
  findings.machine.load = 20;
  const auto advice = advise(findings);
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_TRUE(advice[0].fatal) << "what matters most stands first";
  EXPECT_FALSE(advice[1].fatal);
  EXPECT_THAT(verdict(advice), HasSubstr("cannot train"));
}

TEST(ParseProbe, TakesWhatIsThere) {
  const auto probe = parse_probe(R"({"torch_version": "2.15.0", "gflops_one_lane": 1.5,
    "kernels": {"matmul": "ab", "odd": 3}, "mkl_cbwr": null, "lane_threads": "two"})");
  ASSERT_TRUE(probe.ok());
  EXPECT_EQ(probe->torch_version, "2.15.0");
  EXPECT_EQ(probe->gflops_one_lane, 1.5);
  EXPECT_EQ(probe->kernels.size(), 1u);
  EXPECT_EQ(probe->mkl_cbwr, "");
  EXPECT_EQ(probe->lane_threads, 0);
  EXPECT_FALSE(parse_probe("[]").ok());
  EXPECT_FALSE(parse_probe("").ok());
}

TEST(ParseMachine, ReadsWhatTheKernelSays) {
  MachineTexts texts;
  texts.cpuinfo =
      "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu avx2 avx512f amx_bf16\n\n"
      "processor\t: 1\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu avx2\n";
  texts.meminfo = "MemTotal:       16000000 kB\nMemAvailable:   12000000 kB\n";
  texts.loadavg = "1.25 0.5 0.1 2/300 4000\n";
  texts.cpu_max = "150000 100000\n";
  texts.memory_max = "4294967296\n";
  const Machine machine = parse_machine(texts);
  EXPECT_EQ(machine.processor, "Fast CPU @ 3 GHz");
  EXPECT_THAT(machine.instructions, ElementsAre("AVX2", "AVX-512", "AMX bf16"));
  EXPECT_EQ(machine.cores, 2);
  EXPECT_EQ(machine.memory, 16000000ull * 1024);
  EXPECT_EQ(machine.memory_free, 12000000ull * 1024);
  EXPECT_EQ(machine.load, 1.25);
  EXPECT_EQ(machine.quota, 1.5);
  EXPECT_EQ(machine.memory_limit, 4294967296ull);
}

TEST(ParseMachine, NoLimitsAndNoTexts) {
  MachineTexts texts;
  texts.cpu_max = "max 100000\n";
  texts.memory_max = "max\n";
  const Machine machine = parse_machine(texts);
  EXPECT_EQ(machine.quota, 0);
  EXPECT_EQ(machine.memory_limit, 0u);
  EXPECT_EQ(machine.effective_cores(), 1);
  EXPECT_EQ(parse_machine({}).memory, 0u);
}

}  // namespace
}  // namespace muster::cli
