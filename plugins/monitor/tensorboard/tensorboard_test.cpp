// monitor/tensorboard: the file is read back by its own rules: frames, checksums, fields of the messages.
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/monitor.h>
#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "event_file.h"
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
namespace tb = drivetrain::tensorboard;

// Fields of one message: number -> raw bytes (varints and fixed ones as 8 or 4 bytes), in order.
std::multimap<int, std::string> fields_of(const std::string& message) {
  std::multimap<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    const size_t size = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : (tag & 7) == 2 ? varint() : 0;
    fields.emplace(tag >> 3, (tag & 7) == 0 ? tb::little_endian(varint()) : message.substr(at, size));
    at += size;
  }
  return fields;
}

template <class T>
T number(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// The messages of a file; every frame's length and both checksums are right.
std::vector<std::string> messages_in(const std::string& bytes) {
  std::vector<std::string> messages;
  for (size_t at = 0; at < bytes.size();) {
    const std::string length = bytes.substr(at, 8);
    const auto size = number<uint64_t>(length);
    EXPECT_EQ(number<uint32_t>(bytes.substr(at + 8, 4)), tb::masked_crc(length));
    messages.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(number<uint32_t>(bytes.substr(at + 12 + size, 4)), tb::masked_crc(messages.back()));
    at += 16 + size;
  }
  return messages;
}

struct TensorBoardMonitor : ::testing::Test {
  Host host;
  TempFolder folder;

  std::vector<std::string> run(int64_t first, int64_t last) {
    const auto monitor = make_plugin<Monitor>(host, "tensorboard", R"({"job_name": "mine"})");
    ModelFacts model;
    RunFacts facts;
    facts.train_batch_size = 8;
    PlanRecord plan(model, facts);
    monitor->plan(plan);
    Value begin, data;
    begin.set("output_dir", folder.path()), begin.set("first_step", first);
    std::vector<std::string> before = files();
    monitor->on_event({"run_begin", 0, begin});
    for (int64_t n = first; n <= last; ++n) {
      data.set("step", n), data.set("loss", 1.5), data.set("lr", 0.25);
      monitor->on_event({"step", n, data});
    }
    monitor->on_event({"run_end", last, {}});
    for (const std::string& file : files())
      if (std::find(before.begin(), before.end(), file) == before.end())
        return messages_in(folder.text("mine/" + file));
    return {};
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "mine", none))
      names.push_back(entry.path().filename());
    return names;
  }
};

TEST(Crc32c, is_that_of_RFC_3720) {
  EXPECT_EQ(tb::crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(tb::crc32c(std::string(32, '\0')), 0x8A9136AAu);
}

TEST_F(TensorBoardMonitor, writes_a_version_a_start_and_every_figure_over_samples) {
  const auto messages = run(1, 3);
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(fields_of(messages[0]).find(3)->second, "brain.Event:2");
  EXPECT_EQ(number<int64_t>(fields_of(fields_of(messages[1]).find(7)->second).find(1)->second), 1);
  const auto event = fields_of(messages[3]);
  EXPECT_EQ(number<int64_t>(event.find(2)->second), 16);
  EXPECT_GT(number<double>(event.find(1)->second), 1.7e9);
  std::map<std::string, float> figures;
  const auto values = fields_of(event.find(5)->second);
  for (const auto& [field, value] : values) {
    const auto parts = fields_of(value);
    figures[parts.find(1)->second] = number<float>(parts.find(2)->second);
  }
  EXPECT_EQ(figures, (std::map<std::string, float>{{"Train/Samples/train_loss", 1.5f}, {"Train/Samples/lr", 0.25f}}));
}

TEST_F(TensorBoardMonitor, a_run_that_goes_on_says_from_where_it_replaces_what_was_written) {
  run(1, 4);
  const auto messages = run(3, 4);
  ASSERT_EQ(files().size(), 2u);
  EXPECT_EQ(number<int64_t>(fields_of(messages.at(1)).find(2)->second), 17);
}

}  // namespace
}  // namespace drivetrain
