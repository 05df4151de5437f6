// `drivetrain inspect`: what people and editors read about a right plugin, a wrong file and a wrong command line.
#include "report/inspect.h"

#include "base/trust.h"
#include "cli/parse.h"
#include "plugin_fixture.h"

namespace drivetrain {

class InspectTest : public DoorTest {
 protected:
  std::string inspect(std::vector<std::string> args) {
    args.insert(args.begin(), "inspect");
    testing::internal::CaptureStdout();
    std::string thrown = error_of([&] { exit_code = inspect_command(cli::parse(args)); });
    const std::string printed = testing::internal::GetCapturedStdout();
    return thrown == "nothing was thrown" ? printed : thrown;
  }
  std::string good = folder("good"), file = copy("good", "good/monitor_good.so");
  int exit_code = -1;
};

TEST_F(InspectTest, the_table_lists_every_kind_and_what_is_not_used) {
  copy("other_libtorch", "good/monitor_wrong.so");
  write("good/broken.so", "no library");
  const std::string text = inspect({"--plugin-path", good});
  expect_has(text, {"communicator", "strategy", "toy", "does nothing", "--plugin-path, entry 1", "not used",
                    "broken.so refused: it is not an ELF file", "monitor/toy of ", "is shadowed by"});
  EXPECT_EQ(exit_code, 0);
  EXPECT_EQ(inspect({"monitor", "--plugin-path", good}).find("communicator"), std::string::npos);
}

TEST_F(InspectTest, one_plugin_shows_section_file_and_options) {
  expect_has(inspect({"monitor/toy", "--plugin-path", good}),
             {"monitor/toy  does nothing", file.c_str(), "sha256", sha256(read(file)).c_str(),
              "\"monitors\": {\"type\": \"toy\"", "options: none"});
}

TEST_F(InspectTest, what_a_plugin_declares_of_runs_that_go_on_is_shown_and_held_against_its_options) {
  expect_has(inspect({"strategy/fused_block"}), {"same bits", "with any other recompute_cheap", "but for rounding"});
  const Value one = parse_json(inspect({"strategy/fused_block", "--json"}), "one");
  EXPECT_TRUE(one.find("rounding")->as_bool());
  EXPECT_EQ(one.find("same_bits")->to_json(), R"(["recompute_cheap"])");
  EXPECT_EQ(inspect({"monitor/toy", "--plugin-path", good}).find("rounding"), std::string::npos);
  copy("wrong_effects", "effects/monitor_wrong_effects.so");
  expect_has(inspect({"monitor/toy", "--plugin-path", folder("effects")}),
             {"monitor_wrong_effects.so refused", "\"amount\" of its SAME_BITS is no option", "drivetrain_add_plugin"});
  EXPECT_EQ(code, ErrorCode::plugin);
  expect_has(inspect({built("wrong_effects")}), {"\"amount\" of its SAME_BITS is no option"});
  EXPECT_EQ(exit_code, 3);
}

TEST_F(InspectTest, a_file_shows_every_field_of_its_fingerprint) {
  expect_has(inspect({file}), {"libtorch ", "compiler_abi", "offers    monitor/toy", "may be used"});
  EXPECT_EQ(exit_code, 0);
  expect_has(inspect({built("other_abi")}), {"cxx11_abi", "must match", "refused: built with the other C++11 ABI"});
  EXPECT_EQ(exit_code, 3);
  expect_has(inspect({built("wrong_table")}), {"libtorch ", "\"every\" has the default 0, but takes at least 1"});
  EXPECT_EQ(exit_code, 3);
  EXPECT_EQ(parse_json(inspect({built("no_alias"), "--json"}), "file").find("usable")->as_bool(), false);
  expect_has(inspect({write("text.so", "x")}), {"is not an ELF file"});
  EXPECT_EQ(exit_code, 3);
}

TEST_F(InspectTest, json_and_schema_can_be_parsed) {
  const Value table = parse_json(inspect({"--json", "--plugin-path", good}), "table");
  EXPECT_GE(table.find("plugins")->items().size(), 4u);
  const Value one = parse_json(inspect({"monitor/toy", "--json", "--plugin-path", good}), "one");
  EXPECT_EQ(one.find("file")->as_string(), file);
  EXPECT_EQ(one.find("fingerprint")->items().size(), 15u);
  EXPECT_EQ(one.find("sha256")->as_string(), sha256(read(file)));
  EXPECT_NE(one.find("headers")->find("monitor.h"), nullptr);
  EXPECT_TRUE(one.find("offers")->items().empty()) << "a monitor offers nothing";
  EXPECT_EQ(parse_json(inspect({built("no_manifest"), "--json"}), "file").find("usable")->as_bool(), false);
  const Value schema = parse_json(inspect({"monitor/toy", "--schema", "--plugin-path", good}), "schema");
  EXPECT_EQ(schema.find("type")->as_string(), "object");
}

TEST_F(InspectTest, the_list_as_json_has_the_options_of_each) {
  const Value list = parse_json(inspect({"monitor", "--json", "--plugin-path", good}), "list");
  for (const Value& listed : list.find("plugins")->items()) {
    ASSERT_EQ(listed.find("state")->as_string(), "usable") << listed.to_json();
    const std::string id = "monitor/" + listed.find("name")->as_string();
    const Value one = parse_json(inspect({id, "--json", "--plugin-path", good}), id);
    for (const char* key : {"options", "other_names"}) {
      ASSERT_TRUE(listed.find(key) && one.find(key)) << id << " " << key;
      EXPECT_TRUE(*listed.find(key) == *one.find(key)) << id << " " << key;
    }
  }
}

// Only its code shows that it cannot be used; the others are listed all the same.
TEST_F(InspectTest, a_plugin_that_cannot_be_opened_does_not_end_the_list) {
  copy("wrong_table", "bad/monitor_wrong_table.so");
  const Value list =
      parse_json(inspect({"monitor", "--json", "--plugin-path", folder("bad"), "--plugin-path", good}), "list");
  std::map<std::string, std::string> states;
  for (const Value& listed : list.find("plugins")->items())
    if (listed.find("origin")->as_string() != "installed")
      states[listed.find("name")->as_string() + " " + listed.find("library")->as_string()] =
          listed.find("state")->as_string() + (listed.find("options") ? " with options" : " without options");
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"toy monitor_wrong_table", "refused without options"},
                                                        {"toy monitor_good", "shadowed without options"},
                                                        {"throws monitor_good", "usable with options"},
                                                        {"refuses monitor_good", "usable with options"},
                                                        {"nobody monitor_good", "usable with options"}}));
  EXPECT_EQ(exit_code, 0);
}

TEST_F(InspectTest, mistakes_are_named) {
  expect_has(inspect({"monitr"}), {"there is no kind \"monitr\"", "did you mean \"monitor\"?"});
  EXPECT_EQ(code, ErrorCode::config);
  expect_has(inspect({"monitor/nothing", "--plugin-path", good}), {"monitor/nothing is not installed"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

}  // namespace drivetrain
