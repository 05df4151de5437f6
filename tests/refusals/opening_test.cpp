// What only an open library can show, and that no code of a refused one runs.
#include "plugin_fixture.h"

namespace drivetrain {

class Opening : public DoorTest {
 protected:
  std::string creating(const std::string& name) {
    const Registry registry(only({built(name)}));
    return error_of([&] { registry.create<Monitor>("toy", nullptr, services); });
  }
  // Opens, or tries to, with a place for the trace of a constructor; returns what was printed on stdout.
  std::string opening(const std::string& name) {
    setenv("DRIVETRAIN_TEST_TRACE", trace_.c_str(), 1);
    testing::internal::CaptureStdout();
    said_ = creating(name);
    unsetenv("DRIVETRAIN_TEST_TRACE");
    return testing::internal::GetCapturedStdout();
  }
  bool has_trace() const { return std::filesystem::exists(trace_); }
  const std::string trace_ = scratch_ / "trace";
  std::string said_;
};

TEST_F(Opening, no_code_of_a_refused_file_runs) {
  EXPECT_EQ(opening("refused_traces"), "");
  EXPECT_FALSE(has_trace());
  expect_has(said_, {"refused: built against other contract headers"});
  // With an allow list that wants other bytes, the same for the right one.
  Value list = Value::object();
  list.set("monitor_traces", std::string(64, '0'));
  SearchPath search = only({built("traces")});
  search.allow_only(list);
  setenv("DRIVETRAIN_TEST_TRACE", trace_.c_str(), 1);
  expect_has(error_of([&] { Registry(search).create<Monitor>("toy", nullptr, services); }),
             {"plugins.allow wants other bytes"});
  unsetenv("DRIVETRAIN_TEST_TRACE");
  EXPECT_FALSE(has_trace());
}

// What it prints would be read as a part of the command's result.
TEST_F(Opening, a_constructor_that_prints_does_not_print_on_stdout) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(opening("traces"), "");
  expect_has(testing::internal::GetCapturedStderr(), {"a constructor was here"});
  EXPECT_TRUE(has_trace()) << "the trace works";
  EXPECT_EQ(said_, "nothing was thrown");
}

TEST_F(Opening, a_missing_library_is_named) {
  expect_has(creating("missing_library"), {"monitor_missing_library.so refused: it cannot be opened: ",
                                           "librefusals_gone.so", "`drivetrain doctor --plugin FILE`"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Opening, a_missing_symbol_is_named) {
  expect_has(creating("missing_symbol"),
             {"monitor_missing_symbol.so refused: it cannot be opened: ", "nobody_has_this", "doctor --plugin"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Opening, a_symbol_of_the_insides_of_the_library_is_named) {
  expect_has(creating("private_symbol"), {"monitor_private_symbol.so refused: it links insides of libdrivetrain.so",
                                          "drivetrain::shown(", "use what the headers of the contract have"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Opening, an_option_table_that_cannot_be_made) {
  expect_has(creating("throwing_options"),
             {"the option table of monitor/toy is wrong: making it failed: the tape drive is on fire",
              "monitor_throwing_options.so"});
  expect_has(creating("no_options"),
             {"the option table of monitor/toy is wrong: there is none", "monitor_no_options.so"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

TEST_F(Opening, an_object_of_another_kind) {
  expect_has(creating("other_kind"), {"monitor/toy: create gave an object of another kind"});
  EXPECT_EQ(code, ErrorCode::plugin);
}

}  // namespace drivetrain
