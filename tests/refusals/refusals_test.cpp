// Every way in which a plugin library can be wrong, and what the user reads then. Nothing wrong is ever opened, except
// where only the open library can show it.
#include <pwd.h>

#include <cctype>
#include <thread>

#include "base/trust.h"
#include "plugin_fixture.h"

namespace drivetrain {

class Refusals : public DoorTest {
 protected:
  // What creating monitor/<name> out of one folder says.
  std::string creating(const std::string& file, const std::string& name) {
    const Registry registry(only({file}));
    return error_of([&] { registry.create<Monitor>(name, nullptr, services); });
  }
};

TEST_F(Refusals, the_right_library_is_opened_and_created_and_destroyed_a_thousand_times) {
  const Registry registry(only({built("good")}));
  for (int i = 0; i < 1000; ++i) registry.create<Monitor>("toy", nullptr, services)->on_event({});
  EXPECT_EQ(refusal(built("good")), "");
}

TEST_F(Refusals, ranks_as_threads_share_the_library) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back(
        [&] { Registry(only({built("good")})).create<Monitor>("toy", nullptr, services)->on_event({}); });
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(Refusals, a_missing_plugin_gives_the_list_of_what_is_there) {
  const Registry registry(only({built("good")}));
  const std::string text = error_of([&] { registry.options("monitor", "toi"); });
  EXPECT_EQ(code, ErrorCode::plugin);
  expect_has(text, {"monitor/toi is not installed", "did you mean \"toy\"?",
                    "installed for monitor: nobody, refuses, throws, toy", "DRIVETRAIN_PLUGIN_PATH, entry 1"});
  expect_has(error_of([&] { registry.options("optimizer", "best"); }), {"installed for optimizer: nothing"});
}

TEST_F(Refusals, no_manifest) {
  expect_has(refusal(built("no_manifest")),
             {"monitor_no_manifest.so refused: it is a shared library, but not one of ours", ".drivetrain.manifest",
              "drivetrain_add_plugin"});
}

TEST_F(Refusals, other_libtorch_names_both_values_and_the_remedy) {
  const std::string text = refusal(built("other_libtorch"));
  expect_has(text,
             {"monitor/toy refused: built for a different LibTorch", "plugin 2.10.0+cu12", "runtime 2.11.0+",
              "must match", "libtorch_build_id", "plugin 0123456789", "accepted with a warning",
              "rebuild against this SDK (find_package(Drivetrain ", "`drivetrain inspect FILE.so` repeats this check"});
  EXPECT_EQ(text.find("cxx11_abi"), std::string::npos) << "fields that agree are not shown";
  expect_has(creating(built("other_libtorch"), "toy"),
             {"refused: built for a different LibTorch", "(from DRIVETRAIN_PLUGIN_PATH, entry 1)"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, other_digest) {
  expect_has(refusal(built("other_digest")),
             {"monitor/toy refused: built against other contract headers", "plugin unknown", "plugin.h"});
}

TEST_F(Refusals, other_abi_flag) {
  expect_has(refusal(built("other_abi")),
             {"refused: built with the other C++11 ABI", "plugin 0", "runtime 1", "must match"});
}

TEST_F(Refusals, debug_containers) {
  expect_has(refusal(built("debug_containers")),
             {"refused: built with other debug containers", "plugin debug", "runtime plain"});
}

TEST_F(Refusals, other_sanitizer) {
  expect_has(refusal(built("other_sanitizer")), {"refused: built with another sanitizer", "plugin ", "must match"});
}

TEST_F(Refusals, other_door_in_the_manifest_and_every_differing_field_at_once) {
  std::string bytes = read(patched("{\"door\":1", "{\"door\":2"));
  const size_t at = bytes.find("\"cxx11_abi\":1");
  ASSERT_NE(at, std::string::npos);
  const std::string both = write("both/monitor_good.so", bytes.replace(at, 13, "\"cxx11_abi\":0"));
  expect_has(refusal(both),
             {"refused: made for another door version; built with the other C++11 ABI", "plugin 2    runtime 1"});
}

TEST_F(Refusals, other_door_in_the_code) {
  expect_has(creating(built("other_door"), "toy"),
             {"monitor_other_door.so refused: made for another door version", "plugin 2", "runtime 1"});
}

TEST_F(Refusals, zero_entries_in_the_code) {
  expect_has(creating(built("zero_entries"), "toy"), {"refused: it offers nothing: its descriptor has no entries"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, entries_that_differ_from_the_manifest) {
  expect_has(creating(built("other_entries"), "toy"), {"its manifest lists 1 entries, the code has 4", "ENTRIES"});
  expect_has(creating(patched("\"name\":\"toy\"", "\"name\":\"toe\""), "toe"),
             {"its manifest promises monitor/toe, the code offers monitor/toy and others", "must agree"});
}

TEST_F(Refusals, a_source_that_forgot_the_macro) {
  expect_has(creating(built("no_alias"), "toy"),
             {"monitor_no_alias.so refused: its source has no DRIVETRAIN_PLUGIN(KIND, NAME, CLASS)"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, an_option_table_that_contradicts_itself) {
  expect_has(creating(built("wrong_table"), "toy"),
             {"monitor_wrong_table.so refused: the option table of monitor/toy is wrong", "\"every\" has the default 0",
              "at least 1", "monitor_wrong_table.so (from"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, a_section_form_with_an_option_that_the_plugin_does_not_have) {
  expect_has(creating(built("wrong_form"), "toy"),
             {"monitor_wrong_form.so refused: ", "monitor/toy", "section \"toys\"", "\"amount\"",
              "NUMBER, ON or OFF of drivetrain_add_plugin"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, one_name_twice_in_the_code) {
  expect_has(creating(built("twice"), "toy"), {"monitor_twice.so refused: its code offers monitor/toy twice"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, control_characters_in_a_manifest) {
  const std::string text = refusal(patched("does nothing", "do\\u001b[31m"));
  expect_has(text, {"has a damaged manifest: control characters in \"summary\": do\\x1b[31m"});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(Refusals, one_name_twice_in_a_manifest) {
  expect_has(refusal(patched("\"name\":\"nobody\"", "\"name\":\"throws\"")),
             {"refused: it offers monitor/throws twice"});
}

TEST_F(Refusals, an_unknown_kind_lists_the_kinds) {
  expect_has(refusal(patched("\"kind\":\"monitor\"", "\"kind\":\"monitar\"")),
             {"there is no kind \"monitar\"", "communicator, data_parallel", "strategy"});
}

TEST_F(Refusals, a_damaged_manifest) {
  expect_has(refusal(patched("\"entries\":[", "\"entries\":{")), {"has a damaged manifest"});
  expect_has(refusal(patched("DRIVETRAIN-MANIFEST 1", "DRIVETRAIN-MANIFEST 7")),
             {"wanted \"DRIVETRAIN-MANIFEST 1\"", "MANIFEST 7"});
}

TEST_F(Refusals, a_throwing_create_names_entry_and_file) {
  expect_has(creating(built("good"), "throws"),
             {"in monitor/throws, create: the tape drive is on fire", "monitor_good.so"});
  EXPECT_EQ(code, ErrorCode::plugin);
  expect_has(creating(built("good"), "refuses"), {"monitor/refuses, create: 7 heads do not divide 64"});
  EXPECT_EQ(code, ErrorCode::config) << "what a plugin says about its options stays a configuration error";
}

TEST_F(Refusals, a_null_create_names_entry_and_file) {
  expect_has(creating(built("good"), "nobody"), {"in monitor/nobody, create: gave no object", "monitor_good.so"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Refusals, a_file_that_others_can_write) {
  const std::string file = copy("good", "open/monitor_good.so");
  EXPECT_EQ(refusal(file), "");
  chmod(file.c_str(), 0666);
  expect_has(refusal(file),
             {"refused: its file could be changed by strangers", "monitor_good.so is writable by others", "chmod o-w"});
}

TEST_F(Refusals, a_folder_above_that_others_can_write) {
  const std::string file = copy("good", "outer/inner/monitor_good.so");
  chmod(folder("outer").c_str(), 0777);
  expect_has(refusal(file), {"could be changed by strangers", "outer is writable by others (mode 0777, user "});
  chmod(folder("outer").c_str(), 01777);
  if (geteuid() == 0) {
    EXPECT_EQ(refusal(file), "") << "a sticky folder of root's is fine";
  }
}

// Nobody but its owner is in a user's private group; "users" and the like are everybody's.
TEST_F(Refusals, a_file_that_a_shared_group_can_write) {
  const std::string file = copy("good", "shared/monitor_good.so"), around = folder("shared");
  if (geteuid() == 0) {  // only root can give files away
    ASSERT_EQ(chown(file.c_str(), 0, 100), 0);
    chmod(file.c_str(), 0664);
    expect_has(refusal(file), {"monitor_good.so is writable by a group that others may be in",
                               "mode 0664, user 0 (root)", "group 100", "chmod g-w"});
    ASSERT_EQ(chown(file.c_str(), 0, 0), 0);
    EXPECT_EQ(refusal(file), "") << "root's own group";
    ASSERT_EQ(chown(around.c_str(), 0, 100), 0);
    chmod(around.c_str(), 0775);
    expect_has(refusal(file), {"shared is writable by a group", "chmod g-w"});
    std::filesystem::create_symlink(file, scratch_ / "link.so");
    expect_has(refusal((scratch_ / "link.so").string()), {"shared is writable by a group"});
    ASSERT_EQ(chown(around.c_str(), 0, 0), 0);
    EXPECT_EQ(refusal((scratch_ / "link.so").string()), "");
  }
}

// As Debian makes them: the user, a group of the same name, umask 002.
TEST_F(Refusals, what_a_private_group_can_write_is_taken) {
  const passwd* const user = getpwnam("games");
  if (geteuid() != 0 || !user) GTEST_SKIP() << "only root can become the user of the case";
  const uid_t id = user->pw_uid;
  const gid_t own = user->pw_gid;
  const std::string file = copy("good", "private/monitor_good.so"), around = folder("private");
  const auto judged_as_user = [&](gid_t group) {
    for (const std::string& path : {scratch_.string(), around, file}) {
      EXPECT_EQ(chown(path.c_str(), id, group), 0);
      chmod(path.c_str(), path == file ? 0664 : 0775);
    }
    EXPECT_EQ(seteuid(id), 0);
    const std::string why = trust_problem(file);
    EXPECT_EQ(seteuid(0), 0);
    return why;
  };
  EXPECT_EQ(judged_as_user(own), "");
  expect_has(judged_as_user(100), {"is writable by a group that others may be in", "(games), group 100", "chmod g-w"});
}

TEST_F(Refusals, a_file_of_another_user) {
  const std::string file = copy("good", "other/monitor_good.so");
  if (geteuid() == 0 && chown(file.c_str(), 12345, 0) == 0) {  // only root can make the case
    expect_has(refusal(file), {"belongs to user 12345, neither to root nor to you", "mode 0", "remedy"});
  }
}

TEST_F(Refusals, with_an_allow_list_only_the_listed_bytes_are_opened) {
  const std::string file = copy("good", "allowed/monitor_good.so");
  const std::string digest = sha256(read(file));
  SearchPath search = only({folder("allowed")});
  Value list = Value::object();
  search.allow_only(list);
  expect_has(Registry(search).found().at(0).reason, {"refused: not listed in plugins.allow"});
  for (const char* name : {"monitor_good.so", "monitor_good", "monitor/toy"}) {
    list = Value::object();
    list.set(name, digest);
    search.allow_only(list);
    Registry(search).create<Monitor>("toy", nullptr, services)->on_event({});
  }
  std::string upper_case = digest;
  for (char& c : upper_case) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  list.set("monitor_good", upper_case);
  search.allow_only(list);
  EXPECT_EQ(Registry(search).found().at(0).state, Found::usable);
  list = Value::object();
  list.set("monitor_good", std::string(64, '0'));
  search.allow_only(list);
  const std::string text = error_of([&] { Registry(search).create<Monitor>("toy", nullptr, services); });
  expect_has(text, {"plugins.allow wants other bytes", std::string(64, '0').c_str(), digest.c_str()});
  list.set("monitor_good", "abc");
  expect_has(error_of([&] { search.allow_only(list); }),
             {"plugins.allow.monitor_good: expected 64 hexadecimal digits (SHA-256), found string \"abc\""});
  expect_has(error_of([&] { search.allow_only(Value(3)); }), {"plugins.allow: expected an object", "found integer 3"});
}

}  // namespace drivetrain
