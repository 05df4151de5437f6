// Which of several copies is taken, and that the others are shown rather than forgotten.
#include "plugin_fixture.h"

namespace drivetrain {

class SearchPathTest : public DoorTest {
 protected:
  static std::vector<std::string> states(const std::vector<Found>& list, const std::string& name) {
    std::vector<std::string> out;
    for (const Found& found : list)
      if (found.entry.name == name)
        out.push_back(found.state == Found::usable ? "usable" : found.state == Found::refused ? "refused" : "shadowed");
    return out;
  }
};

TEST_F(SearchPathTest, the_first_folder_wins_and_the_shadowed_copy_is_shown_and_logged) {
  const std::string first = copy("good", "first/monitor_good.so"), second = copy("good", "second/monitor_good.so");
  const Registry registry(only({folder("first"), folder("second")}));
  EXPECT_EQ(states(registry.found(), "toy"), (std::vector<std::string>{"usable", "shadowed"}));
  EXPECT_EQ(registry.entry("monitor", "toy").file->path, first);
  EXPECT_EQ(registry.known().size(), 4u);
  registry.log_notes(log);
  expect_has(log.text, {"monitor/toy of ", second.c_str(), "entry 2) is shadowed by", first.c_str()});
  EXPECT_EQ(Registry(only({folder("second"), folder("first")})).entry("monitor", "toy").file->path, second);
}

TEST_F(SearchPathTest, two_libraries_of_one_folder_with_one_name_go_by_file_name) {
  copy("good", "one/b.so"), copy("good", "one/a.so");
  const Registry registry(only({folder("one")}));
  EXPECT_EQ(registry.entry("monitor", "toy").file->path, folder("one") + "/a.so");
  EXPECT_EQ(states(registry.found(), "toy"), (std::vector<std::string>{"usable", "shadowed"}));
}

TEST_F(SearchPathTest, a_refused_first_copy_is_not_skipped_silently) {
  copy("other_libtorch", "first/monitor_toy.so"), copy("good", "second/monitor_good.so");
  const Registry registry(only({folder("first"), folder("second")}));
  EXPECT_EQ(states(registry.found(), "toy"), (std::vector<std::string>{"refused", "shadowed"}));
  expect_has(error_of([&] { registry.options("monitor", "toy"); }),
             {"monitor/toy refused: built for a different LibTorch", "entry 1"});
  EXPECT_NO_THROW(registry.options("monitor", "throws"));
}

TEST_F(SearchPathTest, one_folder_reached_twice_shadows_nothing) {
  copy("good", "real/monitor_good.so");
  std::filesystem::create_directory_symlink(folder("real"), scratch_ / "link");
  EXPECT_EQ(discover(only({folder("real"), (scratch_ / "link").string()})).size(), 4u);
}

TEST_F(SearchPathTest, the_order_is_config_then_option_then_environment_then_installed) {
  const SearchPath search = SearchPath::standard({"/a", "/b"}, {"/c"}, "/d::/e");
  std::string order;
  for (const SearchPath::Place& place : search.places) order += place.origin + " ";
  EXPECT_EQ(order,
            "plugins.paths, entry 1 plugins.paths, entry 2 --plugin-path, entry 1 DRIVETRAIN_PLUGIN_PATH, entry 1 "
            "DRIVETRAIN_PLUGIN_PATH, entry 3 installed ");
  EXPECT_EQ(search.places.back().path,
            std::filesystem::canonical(DRIVETRAIN_BUILD_DIR).string() + "/lib/drivetrain/plugins");
}

TEST_F(SearchPathTest, a_folder_that_is_not_there_is_shown) {
  const std::vector<Found> list = discover(only({(scratch_ / "typo").string()}));
  ASSERT_EQ(list.size(), 1u);
  expect_has(list[0].reason, {"typo (from DRIVETRAIN_PLUGIN_PATH, entry 1) cannot be searched: No such file"});
}

TEST_F(SearchPathTest, foreign_files_beside_plugins_stop_nothing) {
  copy("good", "mixed/monitor_good.so"), copy("no_manifest", "mixed/other.so"), write("mixed/readme.txt", "x");
  const Registry registry(only({folder("mixed")}));
  EXPECT_EQ(registry.found().size(), 5u);
  EXPECT_NO_THROW(registry.options("monitor", "toy"));
}

TEST_F(SearchPathTest, facts_say_which_library_was_used) {
  const std::string file = copy("good", "here/monitor_good.so");
  const Value facts = Registry(only({folder("here")})).facts("monitor", "toy").to_value();
  EXPECT_EQ(facts.find("file")->as_string(), file);
  EXPECT_EQ(facts.find("version")->as_string(), "0.1.0");
  EXPECT_GE(facts.find("build_id")->as_string().size(), 16u) << "the linker writes build-ids";
}

}  // namespace drivetrain
