// Files that are no libraries, or none for this machine, or damaged: what the user reads, from their bytes alone.
#include "plugin/manifest_reader.h"
#include "plugin_fixture.h"

namespace drivetrain {

using RefusedFiles = DoorTest;

TEST_F(RefusedFiles, what_is_no_library) {
  expect_has(refusal(write("text.so", "INPUT(libc.so.6)\n")), {"text.so refused: it is not an ELF file"});
  expect_has(refusal(write("empty.so", "")), {"is not an ELF file: it has 0 bytes"});
  expect_has(refusal(scratch_.string()), {"is a folder, not a regular file"});
  expect_has(refusal((scratch_ / "none.so").string()), {"cannot be read: No such file"});
}

TEST_F(RefusedFiles, a_pipe_in_place_of_a_library) {
  const std::string path = folder("pipes") + "/monitor_pipe.so";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_has(refusal(path), {"is not a regular file"});
}

TEST_F(RefusedFiles, a_loop_of_links_and_a_link_to_nothing) {
  std::filesystem::create_symlink("b.so", scratch_ / "a.so");
  std::filesystem::create_symlink("a.so", scratch_ / "b.so");
  std::filesystem::create_symlink("nothing", scratch_ / "c.so");
  expect_has(refusal((scratch_ / "a.so").string()),
             {"a.so refused: it cannot be read: Too many levels of symbolic links"});
  const std::vector<Found> list = discover(only({scratch_.string()}));
  ASSERT_EQ(list.size(), 3u) << "each is told, none ends the search";
  for (const Found& found : list) EXPECT_EQ(found.state, Found::refused) << found.file->path;
  expect_has(list[2].reason, {"c.so refused: it cannot be read: No such file"});
}

TEST_F(RefusedFiles, a_folder_that_is_called_like_a_library) {
  folder("plugins/monitor_folder.so");
  const std::vector<Found> list = discover(only({folder("plugins")}));
  ASSERT_EQ(list.size(), 1u);
  expect_has(list[0].reason, {"monitor_folder.so refused: it is a folder"});
}

TEST_F(RefusedFiles, a_program) {
  expect_has(refusal("/proc/self/exe"), {"refused: it is a program, not a shared library"});
  std::string fixed = read(built("good"));
  fixed[16] = 2;  // e_type: a program at a fixed address
  expect_has(refusal(write("program.so", fixed)), {"is a program, not a shared library"});
  fixed[16] = 1;
  expect_has(refusal(write("object.so", fixed)), {"is an ELF file, but not a shared library"});
}

TEST_F(RefusedFiles, for_another_machine) {
  std::string narrow = read(built("good")), other = narrow;
  narrow[4] = 1;  // EI_CLASS: 32 bit
  expect_has(refusal(write("small.so", narrow)), {"is for another machine"});
  other[18] = 21, other[19] = 0;  // e_machine: 64-bit PowerPC
  expect_has(refusal(write("power.so", other)), {"power.so refused: it is for another machine: ppc64, and this is "});
}

TEST_F(RefusedFiles, a_truncated_library_at_any_length) {
  const std::string whole = read(built("good"));
  for (size_t length = 4; length < whole.size(); length += 1 + whole.size() / 97) {
    const std::string text = refusal(write("cut.so", whole.substr(0, length)));
    expect_has(text, {"cut.so refused: it is truncated: ", "the file has"});
  }
}

TEST_F(RefusedFiles, no_flipped_byte_crashes_the_reader) {
  const std::string whole = read(built("good"));
  for (size_t at = 0; at < 64; ++at) {  // the ELF header
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bytes = whole;
      bytes[at] ^= flip;
      read_manifest(write("flip.so", bytes));
    }
  }
  for (size_t at = whole.size() - 64 * 40; at < whole.size(); at += 3) {  // the section table is at the end
    std::string bytes = whole;
    bytes[at] ^= '\xff';
    read_manifest(write("flip.so", bytes));
  }
}

}  // namespace drivetrain
