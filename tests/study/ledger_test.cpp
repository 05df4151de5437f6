// The ledger: what is in it stays, a line that is cut is recognised, and there is one writer.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <drivetrain/error.h>

#include "study/ledger.h"

namespace drivetrain::study {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    char name[] = "/tmp/drivetrain-study-XXXXXX";
    folder = mkdtemp(name);
  }
  ~LedgerTest() override { std::filesystem::remove_all(folder); }
  std::string file() const { return folder + "/ledger.jsonl"; }
  std::string text() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static Value line(int number) {
    Value value = Value::object();
    value.set("event", "end"), value.set("number", number);
    return value;
  }
  std::string folder;
};

TEST_F(LedgerTest, keeps_lines_and_lets_one_writer_in) {
  {
    Ledger ledger(folder);
    EXPECT_TRUE(ledger.is_new());
    ledger.add(line(1)), ledger.add(line(2));
    try {
      Ledger second(folder);
      ADD_FAILURE() << "two writers";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      EXPECT_NE(std::string(e.what()).find("another process is at work"), std::string::npos);
    }
  }
  const Ledger again(folder);
  ASSERT_EQ(again.lines().size(), 2u);
  EXPECT_EQ(again.lines()[1], line(2));
  EXPECT_EQ(again.cut_line(), 0);
}

// Cut after every byte of the last line: the lines before it stay, and so does every byte that was there.
TEST_F(LedgerTest, a_line_cut_anywhere_is_recognised_and_the_next_one_is_whole) {
  {
    Ledger ledger(folder);
    ledger.add(line(1)), ledger.add(line(2));
  }
  const std::string all = text(), first = line(1).to_json() + "\n";
  for (size_t size = first.size() + 1; size < all.size(); ++size) {
    std::ofstream(file()) << all.substr(0, size);
    {
      Ledger ledger(folder);
      const bool whole = size == all.size() - 1;  // only the line's end is missing
      EXPECT_EQ(ledger.cut_line(), whole ? 0 : 2) << size;
      EXPECT_EQ(ledger.lines().size(), whole ? 2u : 1u);
      ledger.add(line(3));
    }
    EXPECT_TRUE(text().starts_with(all.substr(0, size)));
    const std::vector<Value> lines = read_ledger(folder);
    EXPECT_EQ(lines.back(), line(3));
    EXPECT_EQ(Ledger(folder).cut_line(), 0);
  }
}

TEST_F(LedgerTest, a_damaged_line_in_the_middle_is_refused_by_its_number) {
  std::ofstream(file()) << line(1).to_json() << "\n{\"event\": \"e\n" << line(2).to_json() << "\n";
  try {
    Ledger ledger(folder);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("ledger.jsonl:2"), std::string::npos) << e.what();
  }
}

TEST_F(LedgerTest, a_full_disk_is_an_error_that_says_how_to_go_on) {
  std::signal(SIGXFSZ, SIG_IGN);
  Ledger ledger(folder);
  ledger.add(line(1));
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{text().size() + 5, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string said;
  try {
    ledger.add(line(2));
  } catch (const Error& e) {
    said = e.what();
    EXPECT_EQ(e.code(), ErrorCode::io);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("--resume"), std::string::npos) << said;
}

TEST(Differences, name_the_keys_that_differ) {
  const Value before = parse_json(R"({"a": {"b": 1, "c": [1, 2]}, "d": 4})", ""),
              now = parse_json(R"({"a": {"b": 2, "c": [1, 2]}, "e": 5})", "");
  EXPECT_EQ(differences(before, now),
            (std::vector<std::string>{"a.b: 1 when it began, 2 now", "d: 4 when it began, is not there now",
                                      "e: was not there when it began, 5 now"}));
  EXPECT_TRUE(differences(before, before).empty());
}

}  // namespace
}  // namespace drivetrain::study
