// Files that appear whole or not at all, and what happens to a name that stands for something else than a file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "state/new_file.h"
#include "train/run_folder.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class NewFileTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string error_of_writing(const std::string& name) const {
    try {
      write_text_file(path(name), "new");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      return e.what();
    }
    return "";
  }

  const TempFolder folder_;
};

TEST_F(NewFileTest, replaces_a_regular_file) {
  std::ofstream(path("file")) << "a longer old text";
  write_text_file(path("file"), "new");
  EXPECT_EQ(folder_.text("file"), "new");
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(NewFileTest, follows_a_symbolic_link_to_its_file_there_or_not) {
  fs::create_directory(path("elsewhere"));
  std::ofstream(path("elsewhere/old")) << "old";
  fs::create_symlink("elsewhere/old", path("to_old"));
  fs::create_symlink("to_old", path("to_link"));
  fs::create_symlink(path("elsewhere/absent"), path("to_absent"));
  write_text_file(path("to_link"), "new");
  write_text_file(path("to_absent"), "made");
  EXPECT_EQ(folder_.text("elsewhere/old"), "new");
  EXPECT_EQ(folder_.text("elsewhere/absent"), "made");
  for (const char* link : {"to_old", "to_link", "to_absent"}) EXPECT_TRUE(fs::is_symlink(path(link))) << link;
}

TEST_F(NewFileTest, writes_through_to_a_device_and_leaves_it) {
  fs::create_symlink("/dev/full", path("full"));  // a link, so that a defect harms no device
  fs::create_symlink("/dev/null", path("null"));
  EXPECT_NE(error_of_writing("full").find("No space left"), std::string::npos);
  EXPECT_EQ(error_of_writing("null"), "");
  EXPECT_TRUE(fs::is_symlink(path("full")) && fs::is_symlink(path("null")));
  EXPECT_TRUE(fs::is_character_file("/dev/full") && fs::is_character_file("/dev/null"));
}

TEST_F(NewFileTest, writes_through_to_a_pipe_that_has_a_reader) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of_writing("pipe").find("nobody reads"), std::string::npos);
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_text_file(path("pipe"), "new");
  char text[8] = "";
  EXPECT_EQ(read(reader, text, sizeof text), 3);
  EXPECT_STREQ(text, "new");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

// `> FILE` of a shell: what stands in the file already stays, and so does the file.
TEST_F(NewFileTest, writes_through_to_an_open_descriptor_at_its_place) {
  const int file = open(path("file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "old ", 4), 4);
  write_text_file(concat("/dev/fd/", file), "new");
  write_text_file(concat("/proc/self/fd/", file), "er");
  fs::create_symlink(concat("/dev/fd/", file), path("link"));
  write_text_file(path("link"), "!");
  close(file);
  EXPECT_EQ(folder_.text("file"), "old newer!");
}

TEST_F(NewFileTest, refuses_folders_and_sockets) {
  fs::create_directory(path("folder"));
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path("socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(error_of_writing("folder").find("is a folder"), std::string::npos);
  EXPECT_NE(error_of_writing("socket").find("is a socket"), std::string::npos);
  close(server);
  EXPECT_EQ(folder_.entries(), 2u);
}

TEST_F(NewFileTest, commit_new_leaves_what_is_there) {
  std::ofstream(path("file")) << "old";
  NewFile file(path("file"), 3);
  file.write_at(0, "new", 3);
  EXPECT_FALSE(file.commit_new());
  EXPECT_EQ(folder_.text("file"), "old");
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(NewFileTest, a_run_folder_that_several_want_at_once_is_had_by_one) {
  for (int round = 0; round < 20; ++round) {
    const std::string run = path(concat("run", round));
    std::atomic<int> winners = 0, refused = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
      threads.emplace_back([&, i] {
        try {
          take_run_folder(run, concat("of ", i));
          ++winners;
        } catch (const Error& e) {
          refused += e.code() == ErrorCode::config;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(refused, 5);
    EXPECT_EQ(std::distance(fs::directory_iterator(run), fs::directory_iterator()), 1);
  }
}

// A killed run leaves its resolved.json too, so the next one into its folder is refused, and cleans up all the same.
TEST_F(NewFileTest, a_run_that_is_refused_removes_what_the_killed_owner_left_half_written) {
  const pid_t ended = fork();
  if (ended == 0) {
    fs::create_directory(path("run"));
    NewFolder final(path("run/final"));
    _exit(0);  // as if killed: no destructor
  }
  waitpid(ended, nullptr, 0);
  const NewFolder of_a_living(path("run/other"));
  ASSERT_EQ(std::distance(fs::directory_iterator(path("run")), fs::directory_iterator()), 2);
  std::ofstream(path("run/resolved.json")) << "{}";
  EXPECT_THROW(check_run_folder(path("run")), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("run")), fs::directory_iterator()), 2);
  EXPECT_TRUE(fs::exists(of_a_living.temporary()));
}

TEST_F(NewFileTest, a_run_removes_what_a_killed_one_left_half_written) {
  fs::create_directories(path("run/.final.unfinished-4711-0"));
  std::ofstream(path("run/.final.unfinished-4711-0/.model.safetensors.unfinished-4711-1")) << "half";
  std::ofstream(path("run/mine.txt")) << "kept";
  take_run_folder(path("run"), "{}");
  EXPECT_TRUE(fs::exists(path("run/mine.txt")));
  EXPECT_TRUE(fs::exists(path("run/resolved.json")));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("run")), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace drivetrain::test
