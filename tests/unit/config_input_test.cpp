// What is opened as a config: files and pipes that come to an end, and nothing that waits or gives for ever. And how
// much of a hostile one is told.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <thread>

#include "base/input_file.h"
#include "base/piped.h"
#include "config/run_settings.h"
#include "config/sections.h"
#include "config_files/load.h"
#include "config_sections_fixture.h"

namespace drivetrain {
namespace {

class ConfigInput : public ConfigFiles {
 protected:
  Value load(const std::string& path) {
    Problems problems;
    Value config = load_config(path, {}, problems);
    EXPECT_EQ(problems.text(), "");
    return config;
  }
  std::string refusal_of(const std::string& path) {
    return config_error_of([&] { load(path); });
  }
  std::string make_pipe() {
    const std::string path = (folder_ / "pipe").string();
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
};

TEST_F(ConfigInput, a_pipe_is_read_to_its_end) {
  const std::string path = make_pipe();
  std::thread writer([&] {
    std::ofstream out(path);  // waits for the reader
    out << "{\"seed\": " << std::flush;
    // Waits: the reader is between two pieces, mostly; either is right
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    out << "7}";
  });
  EXPECT_EQ(load(path).find("seed")->as_int(), 7);
  writer.join();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "{}", 2), 2);
  close(ends[1]);
  EXPECT_TRUE(load(concat("/dev/fd/", ends[0])).is_object()) << "as a shell gives it";
  close(ends[0]);
}

TEST_F(ConfigInput, a_run_of_what_came_through_a_pipe_has_one_name_however_it_was_typed) {
  for (const std::string& path : {make_pipe(), std::string("/dev/stdin"), std::string("/dev/fd/63")}) {
    Problems problems;
    const RunSettings s = read_run_settings(parse_json("{\"train_steps\": 5}", path), path, problems);
    EXPECT_EQ(s.output_dir, (std::filesystem::current_path() / "runs/config").string()) << path;
  }
}

TEST(Piped, a_descriptor_is_named_by_a_number_alone) {
  EXPECT_EQ(descriptor_named("/dev/stdin"), 0);
  EXPECT_EQ(descriptor_named("/dev/stdout"), 1);
  EXPECT_EQ(descriptor_named("/dev/stderr"), 2);
  EXPECT_EQ(descriptor_named("/dev/fd/63"), 63);
  EXPECT_EQ(descriptor_named("/proc/self/fd/7"), 7);
  for (const char* path : {"", "/dev/fd/", "/dev/fd/-1", "/dev/fd/3x", "/dev/fd/99999999999", "/dev/null", "fd/3"})
    EXPECT_EQ(descriptor_named(path), -1) << path;
}

TEST_F(ConfigInput, a_pipe_that_nobody_writes_to_ends_by_a_deadline) {
  const auto read = [&] {
    read_text(make_pipe(), InputKind::file_or_pipe, "a JSON file", std::chrono::milliseconds(50));
  };
  EXPECT_HAS(config_error_of(read), "pipe: the pipe gave 0 bytes and no end within 0.05 s");
}

TEST_F(ConfigInput, what_is_neither_file_nor_pipe_is_refused_at_once) {
  EXPECT_HAS(refusal_of("/dev/zero"), "/dev/zero: is a device; a JSON file was wanted\n   name a file or a pipe");
  EXPECT_HAS(refusal_of(folder_.string()), "is a folder");
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  const std::string path = (folder_ / "s").string();
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_HAS(refusal_of(path), "is a socket");
  close(fd);
  EXPECT_HAS(config_error_of([&] { read_json_file(make_pipe()); }), "pipe: is a pipe; a JSON file was wanted");
}

TEST_F(ConfigInput, a_file_of_any_size_costs_little) {
  const std::string path = write("large.json", "{}");
  ASSERT_EQ(truncate(path.c_str(), off_t{1} << 40), 0);  // a hole
  EXPECT_HAS(refusal_of(path), "larger than 64 MB");
  std::string many = "[0";
  for (int i = 0; i < 2'000'000; ++i) many += ",0";
  EXPECT_HAS(refusal_of(write("many.json", many + "]")), "more than 2000000 values");
}

int64_t peak_megabytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// Work for every two of them would take longer than this test may (CTest's limit).
TEST_F(ConfigInput, three_hundred_thousand_unknown_keys_are_told_in_twenty) {
  const int64_t before = peak_megabytes();
  std::string text = "{\"model\": \"gpt\"";
  for (int i = 0; i < 300'000; ++i) text += concat(",\n\"gradient_acumulation_steps", i, "\": 1");
  Problems problems;
  const Value config = load_config(write("keys.json", text + "}"), {}, problems);
  select_plugins(config, kKinds, plugins(), "cpu", problems);
  const std::string told = config_error_of([&] { problems.throw_if_any(); });
  EXPECT_HAS(told, "keys.json:2:1  gradient_acumulation_steps0");
  EXPECT_HAS(told, "did you mean \"gradient_accumulation_steps\"?");
  EXPECT_HAS(told, "keys.json:21:1");
  EXPECT_FALSE(has(told, "keys.json:22:1"));
  EXPECT_HAS(told, "\nand 299980 more problems");
  EXPECT_LT(told.size(), 60'000u);
  EXPECT_LT(peak_megabytes() - before, 600);
}

TEST_F(ConfigInput, a_name_of_25_megabytes_is_shortened) {
  const std::string name(25 << 20, 'k');
  Problems problems;
  const std::string text = "{\"" + name + "\": 1, \"attention\": \"" + name + "\"}";
  const Value config = load_config(write("long.json", text), {}, problems);
  select_plugins(config, kKinds, plugins(), "cpu", problems);
  EXPECT_HAS(problems.text(), "kkk...(26214400 bytes)...kkk");
  EXPECT_LT(problems.text().size(), 10'000u);
}

TEST_F(ConfigInput, control_characters_of_names_are_shown_as_escapes) {
  const std::string text = refusal(R"("a\u001b[31m\nb\u202e\u009b": 1, "attention": "x\ry")");
  EXPECT_HAS(text, R"(a\x1b[31m\x0ab\u202e\x9b is not a setting)");
  EXPECT_HAS(text, R"(attention/x\x0dy)");
  EXPECT_EQ(text.find_first_of("\x1b\r"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
