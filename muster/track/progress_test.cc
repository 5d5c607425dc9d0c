#include "muster/track/progress.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::track {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What a terminal makes of what is written to it.
class Screen final : public Sink {
 public:
  explicit Screen(bool terminal, int width = 100, bool colour = false)
      : terminal_(terminal), width_(width), colour_(colour) {}

  void write(std::string_view text) override {
    ++writes_;
    raw_ += text;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') {
        rows_.emplace_back();
        column_ = 0;
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text.substr(i).starts_with("\x1b[K")) {
        rows_.back().resize(column_);
        i += 2;
      } else {
        if (rows_.back().size() <= column_) rows_.back().resize(column_ + 1);
        rows_.back()[column_++] = text[i];
        EXPECT_TRUE(!terminal_ || column_ < static_cast<size_t>(width_)) << "wraps";
      }
    }
  }
  bool is_terminal() const override { return terminal_; }
  bool has_colour() const override { return colour_; }
  int width() const override { return width_; }

  void resize(int width) { width_ = width; }
  const std::vector<std::string>& rows() const { return rows_; }  // the last one has the cursor
  const std::string& raw() const { return raw_; }
  int writes() const { return writes_; }

 private:
  bool terminal_;
  int width_;
  bool colour_;
  std::vector<std::string> rows_{1};
  size_t column_ = 0;
  std::string raw_;
  int writes_ = 0;
};

ProgressOptions options(ProgressMode mode = ProgressMode::kNormal) {
  ProgressOptions options;
  options.mode = mode;
  options.total_steps = 3000;
  options.total_passes = 3;
  return options;
}

// `count` steps of 100 samples, `each` apart.
void train(Progress& progress, FakeClock& clock, int64_t first, int64_t count, Duration each) {
  for (int64_t step = first; step < first + count; ++step) {
    clock.advance(each);
    progress.step({step, static_cast<double>(step) / 1000, 0.5, 100});
  }
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  Screen screen(true);
  FakeClock clock;
  {
    Progress progress(screen, clock, options());
    train(progress, clock, 1, 1, 2s);  // the first, slow step does not spoil the speed
    EXPECT_THAT(screen.rows(),
                ElementsAre("[>                   ]  pass 0.00/3  step 1/3,000  loss 0.5000"));
    train(progress, clock, 2, 1499, 10ms);
    EXPECT_THAT(screen.rows(),
                ElementsAre("[=========>          ]  pass 1.49/3  step 1,491/3,000  loss 0.5000  "
                            "10,000 samples/s  15s left"));
  }
  EXPECT_THAT(screen.rows(), testing::SizeIs(2)) << "ends on a line of its own";
}

TEST(Progress, WritesAtMostTenTimesASecondHoweverFastTheSteps) {
  Screen screen(true);
  FakeClock clock;
  Progress progress(screen, clock, options());
  train(progress, clock, 1, 2000, 1ms);
  EXPECT_LE(screen.writes(), 21);
  EXPECT_GE(screen.writes(), 19);
}

TEST(Progress, DropsFieldsRatherThanWrap) {
  const std::vector<std::pair<int, std::string>> expected = {
      {73, "pass 1.00/3  step 1,001/3,000  loss 0.5000  10,000 samples/s  20s left"},
      {60, "step 1,001/3,000  loss 0.5000  10,000 samples/s  20s left"},
      {45, "step 1,001/3,000  loss 0.5000  20s left"},
      {35, "step 1,001/3,000  loss 0.5000"},
      {20, "step 1,001/3,000"},
      {10, "step 1,00"},
      {1, "s"}};
  for (const auto& [width, line] : expected) {
    Screen screen(true, 100);
    FakeClock clock;
    Progress progress(screen, clock, options());
    train(progress, clock, 1, 1000, 10ms);
    screen.resize(width == 1 ? 2 : width);
    train(progress, clock, 1001, 1, 10ms);  // a redraw is due
    EXPECT_EQ(screen.rows().back(), line) << "width " << width;
  }
}

TEST(Progress, EvaluationsScrollAboveAndDoNotCountAsTraining) {
  Screen screen(true);
  FakeClock clock;
  Progress progress(screen, clock, options());
  train(progress, clock, 1, 1000, 10ms);
  progress.busy("evaluating");
  EXPECT_THAT(screen.rows().back(), HasSubstr("samples/s  evaluating"));
  clock.advance(60s);
  const std::vector<Metric> metrics = {{"accuracy", 0.9876}, {"loss", 1.5e-4}};
  progress.eval({1000, 1.0, metrics, true});
  train(progress, clock, 1001, 11, 10ms);
  ASSERT_EQ(screen.rows().size(), 2u);
  EXPECT_EQ(screen.rows()[0],
            "pass 1.00  step 1,000  test: accuracy 0.9876, loss 1.500e-04  best so far");
  EXPECT_THAT(screen.rows()[1], HasSubstr("10,000 samples/s  20s left"));
  EXPECT_THAT(screen.raw(), Not(HasSubstr("\x1b[32m")));
}

TEST(Progress, ColourOnlyWhereItIsWanted) {
  Screen screen(true, 100, true);
  FakeClock clock;
  Progress progress(screen, clock, options());
  progress.eval({1, 0, {}, true});
  EXPECT_THAT(screen.raw(), HasSubstr("\x1b[32mbest so far\x1b[0m"));
}

TEST(Progress, PlainLinesWithoutATerminal) {
  Screen screen(false);
  FakeClock clock;
  {
    Progress progress(screen, clock, options());
    train(progress, clock, 1, 2001, 10ms);
    progress.message("a warning\nin two lines");
    progress.eval({2001, 2.0, std::vector<Metric>{{"loss", NAN}}, false});
    train(progress, clock, 2002, 999, 10ms);
    progress.finish({{"steps", 3000}});
  }
  EXPECT_THAT(screen.rows(),
              ElementsAre("pass 0.00/3  step 1/3,000  loss 0.5000",
                          "pass 1.00/3  step 1,001/3,000  loss 0.5000  10,000 samples/s  20s left",
                          "pass 2.00/3  step 2,001/3,000  loss 0.5000  10,000 samples/s  10s left",
                          "a warning in two lines", "pass 2.00  step 2,001  test: loss nan",
                          "pass 3.00/3  step 3,000/3,000  loss 0.5000  10,000 samples/s  0.0s left",
                          "3,000 steps in 30s, 10,000 samples/s", ""));
  EXPECT_THAT(screen.raw(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(screen.raw(), Not(HasSubstr("\r")));
}

TEST(Progress, JsonLinesEndWithTheResult) {
  Screen screen(false);
  FakeClock clock;
  Progress progress(screen, clock, options(ProgressMode::kJson));
  train(progress, clock, 1, 150, 10ms);
  progress.busy("evaluating");
  progress.eval({150, 0.15, std::vector<Metric>{{"accuracy", 0.5}}, true});
  progress.message("hello");
  progress.finish({{"weights_hash", "ab"}, {"steps", 150}});
  progress.message("after the end");
  EXPECT_THAT(
      screen.rows(),
      ElementsAre(R"({"event":"step","step":1,"pass":0.001,"loss":0.5,)"
                  R"("samples_per_second":null,"seconds_left":null})",
                  R"({"event":"step","step":101,"pass":0.101,"loss":0.5,)"
                  R"("samples_per_second":10000.0,"seconds_left":28.99})",
                  R"({"event":"eval","step":150,"pass":0.15,"test":{"accuracy":0.5},"best":true})",
                  R"({"event":"message","text":"hello"})",
                  R"({"event":"result","steps":150,"weights_hash":"ab"})", ""));
}

TEST(Progress, JsonCanHaveEveryStep) {
  Screen screen(false);
  FakeClock clock;
  auto every = options(ProgressMode::kJson);
  every.json_every = 0s;
  Progress progress(screen, clock, every);
  train(progress, clock, 1, 50, 0s);  // also when the clock stands still
  EXPECT_EQ(screen.rows().size(), 51u);
  for (size_t i = 0; i + 1 < screen.rows().size(); ++i) {
    EXPECT_EQ(nlohmann::json::parse(screen.rows()[i]).at("step"), i + 1);
  }
}

TEST(Progress, QuietSaysTheResultAndNothingElse) {
  Screen screen(true);
  FakeClock clock;
  {
    Progress progress(screen, clock, options(ProgressMode::kQuiet));
    train(progress, clock, 1, 100, 1s);
    progress.busy("evaluating");
    progress.eval({100, 1, {}, true});
    progress.message("hello");
    EXPECT_THAT(screen.raw(), IsEmpty());
    progress.finish({{"steps", 1500},
                     {"weights_hash", "ab"},
                     {"run_dir", "runs/x"},
                     {"test", {{"accuracy", 0.75}, {"loss", nullptr}}}});
  }
  EXPECT_EQ(screen.raw(), "1,500 steps, accuracy 0.7500, weights ab in runs/x\n");
}

TEST(Progress, TheSpeedFollowsAChangeSmoothly) {
  Screen screen(true);
  FakeClock clock;
  Progress progress(screen, clock, options());
  train(progress, clock, 1, 500, 10ms);
  EXPECT_NEAR(progress.speed(), 10000, 1);
  train(progress, clock, 501, 50, 20ms);  // one second at half the speed
  EXPECT_LT(progress.speed(), 9500);
  EXPECT_GT(progress.speed(), 8500);
  train(progress, clock, 551, 1500, 20ms);
  EXPECT_NEAR(progress.speed(), 5000, 50);
}

TEST(Progress, TheTimeLimitBoundsTheTimeLeft) {
  Screen screen(true);
  FakeClock clock;
  auto limited = options();
  limited.time_limit = 12s;
  Progress progress(screen, clock, limited);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 12);
  train(progress, clock, 1, 101, 10ms);  // 29 s by the steps
  EXPECT_NEAR(progress.seconds_left(), 10.99, 1e-9);
  clock.advance(60s);
  EXPECT_EQ(progress.seconds_left(), 0);
}

TEST(Progress, AResumedRunCountsItsOwnStepsAtTheEnd) {
  Screen screen(false);
  FakeClock clock;
  auto resumed = options();
  resumed.first_step = 2900;
  Progress progress(screen, clock, resumed);
  train(progress, clock, 2901, 100, 10ms);
  progress.finish({});
  EXPECT_THAT(screen.raw(), HasSubstr("\n100 steps in 1.0s, 10,000 samples/s\n"));
}

}  // namespace
}  // namespace muster::track
