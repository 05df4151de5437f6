// drivetrain-conformance: the suites over the plugins of one library, in or out of this tree.
//
// Exit codes are the contract's: 0 all cases passed, 1 one did not, 2 usage or options, 3 a plugin that is refused or
// whose kind has no suite.
#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <drivetrain/toolkit/text.h>

#include <drivetrain/testkit/communicator/suite.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/results.h>
#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/train.h>

namespace drivetrain::test {
namespace {

// Who reads what was never written or was freed, reads NaN.
const PoisonedMemory poisoned;

constexpr const char* kUsage =
    R"(usage: drivetrain-conformance PLUGIN.so [KIND/NAME] [--options JSON] [--ranks-multiple N] [--case PATTERN]
                              [--list] [--json] [--junit FILE]

Runs the conformance suite of its kind over every plugin of the library, or over the one that is named. A failed case
says which sentence of the contract was broken; what a plugin does not declare is listed with the reason.
  --options JSON       options of the plugin, as in "params" of a config; {} without it
  --ranks-multiple N   the options allow numbers of ranks that N divides; the suite uses up to 4 or 8
  --case PATTERN       only cases whose name fits, with * and ?; several with : between them
  --list               names the cases, each with its sentence of the contract, and runs none
  --json               prints one JSON object instead of lines
  --junit FILE         writes the results as JUnit XML too
Exit code: 0 passed, 1 a case failed, 2 usage or options, 3 the plugin is refused or its kind has no suite,
8 the output cannot be written.
)";

pid_t at_work = 0;  // the process that has not yet come to an end of its own

// A plugin that ends the process would look like one that passed.
void on_exit_by_others(int code, void*) {
  if (at_work != getpid()) return;
  std::cout << std::flush;
  std::cerr << "drivetrain-conformance: exit() was called with code " << code
            << " before the cases were done; a plugin throws and does not end the process" << std::endl;
  _exit(code == 0 ? 1 : code);
}

struct Request {
  std::string file, plugin, cases = "*", junit;
  Value options = Value::object();
  int64_t rank_multiple = 1;
  bool list = false, json = false;
};

Request read_request(const std::vector<std::string>& words) {
  Request request;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto value = [&] {
      if (i + 1 == words.size()) throw fail(ErrorCode::config, word, " wants a value\n", kUsage);
      return words[++i];
    };
    if (word == "--options")
      request.options = parse_json(value(), "--options");
    else if (word == "--ranks-multiple")
      request.rank_multiple = parse_json(value(), "--ranks-multiple").as_int();
    else if (word == "--case")
      request.cases = value();
    else if (word == "--junit")
      request.junit = value();
    else if (word == "--list")
      request.list = true;
    else if (word == "--json")
      request.json = true;
    else if (word.starts_with("-"))
      throw fail(ErrorCode::config, "unknown option ", word, "\n", kUsage);
    else if (request.file.empty())
      request.file = word;
    else if (request.plugin.empty())
      request.plugin = word;
    else
      throw fail(ErrorCode::config, "unexpected ", word, "\n", kUsage);
  }
  if (request.file.empty()) throw fail(ErrorCode::config, "no plugin was named\n", kUsage);
  if (request.rank_multiple < 1) throw fail(ErrorCode::config, "--ranks-multiple must be at least 1");
  if (!request.options.is_object())
    throw fail(ErrorCode::config, "--options wants a JSON object, such as {\"size\": 2}; found ",
               request.options.to_json());
  return request;
}

// The runtime's own judgement of the file: a library of another build is refused with its reason before it is opened.
void ask_the_runtime(const std::string& file) {
  if (std::filesystem::is_directory(file))
    throw fail(ErrorCode::plugin, file, " is a folder; name one library in it, KIND_NAME.so");
  const Output answer = run_program({"inspect", file});
  if (answer.code != 0) throw fail(static_cast<ErrorCode>(answer.code), answer.text);
}

// Problems of these options that a plugin without any does not have: cases add those that it needs.
Problems problems_of(const OptionTable& table, const Value& options, const std::string& plugin) {
  Problems bare, all, own;
  table.parse(Value::object(), plugin, "--options", bare);
  table.parse(options, plugin, "--options", all);
  for (const Problem& problem : all.list()) {
    const auto same = [&](const Problem& other) { return other.message == problem.message; };
    if (std::none_of(bare.list().begin(), bare.list().end(), same))
      own.add(problem.where, problem.message, problem.code);
  }
  return own;
}

// Options that the plugin does not know, and values that it does not take, are usage and no case's failure.
void check_options(const Value& options, const Plugins::Name& entry) {
  if (options.members().empty()) return;
  const OptionTable& table = installed_plugins().options(entry.kind, entry.name);
  problems_of(table, options, entry.text()).throw_if_any();
  Problems missing;
  table.parse(options, entry.text(), "--options", missing);
  if (!missing.empty() || entry.kind == Communicator::kKind) return;  // the one needs a case, the other its ranks
  try {
    const Host host;
    installed_plugins().create(entry.kind, entry.name, options, host.services);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::config) throw fail(ErrorCode::config, "--options: ", e.what());
  } catch (const std::exception&) {
    // A case will tell.
  }
}

// Plugins that no case could test here are refused once.
void check_testable(const Subject& subject) {
  if (subject.kind == "communicator") check_ranks_can_be_threads(subject);
}

bool fits(const std::string& name, const std::string& patterns) {
  for (size_t at = 0; at <= patterns.size();) {
    const size_t end = std::min(patterns.find(':', at), patterns.size());
    if (fnmatch(patterns.substr(at, end - at).c_str(), name.c_str(), 0) == 0) return true;
    at = end + 1;
  }
  return false;
}

// The plugins of the library that can be tested; those without a suite are named.
std::vector<Subject> subjects_of(const Request& request) {
  std::vector<Subject> subjects;
  std::string others;
  for (const Plugins::Name& entry : installed_plugins().open(request.file)) {
    if (!request.plugin.empty() && request.plugin != entry.text()) {
      others += " " + entry.text();
    } else if (suite_of(entry.kind).empty()) {
      std::cout << entry.text() << ": there is no suite for this kind (there is one for " << join(kinds_with_a_suite())
                << ")\n";
    } else {
      check_options(request.options, entry);
      subjects.push_back({entry.kind, entry.name, request.options, request.rank_multiple});
    }
  }
  if (subjects.empty())
    throw fail(ErrorCode::plugin, request.file, ": nothing to test", others.empty() ? "" : "; it offers" + others);
  return subjects;
}

class RunCase : public testing::Test {
 public:
  RunCase(Subject subject, SuiteCase run) : subject_(std::move(subject)), case_(std::move(run)) {}
  void TestBody() override { case_.run(subject_); }

 private:
  const Subject subject_;
  const SuiteCase case_;
};

void name_case(const Subject& subject, const std::string& name) {
  const Promise promise = promise_of(subject.kind, name);
  std::cout << subject.kind << "/" << subject.name << " " << name << "\n";
  if (!promise.sentence.empty()) std::cout << "    " << promise.text() << "\n";
}

Value named_case(const Subject& subject, const std::string& name) {
  const Promise promise = promise_of(subject.kind, name);
  return Value::Object{{"plugin", subject.kind + "/" + subject.name},
                       {"case", name},
                       {"contract", promise.header},
                       {"sentence", promise.sentence}};
}

std::ofstream open_junit(const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!path.empty() && !file)
    throw fail(ErrorCode::io, "--junit: cannot write ", path, ": ", std::strerror(errno), "\n   choose another file");
  return file;
}

// Runs what was registered. The file is opened before, so that an hour is not lost to a wrong path.
int run_cases(const Request& request) {
  std::ofstream junit = open_junit(request.junit);
  std::vector<CaseResult> results;
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (request.json) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Collector(results, request.json));
  const int code = RUN_ALL_TESTS();
  if (request.json) std::cout << results_value(results).to_json(2) << "\n";
  if (!request.junit.empty() && !(junit << junit_text(results)).flush())
    throw fail(ErrorCode::io, "--junit: cannot write ", request.junit, "; is the disk full?");
  return code;
}

int run(const std::vector<std::string>& words) {
  const bool asks = std::any_of(words.begin(), words.end(), [](const auto& w) { return w == "--help" || w == "-h"; });
  if (words.empty() || asks) {
    (asks ? std::cout : std::cerr) << kUsage;
    return asks ? 0 : 2;
  }
  const Request request = read_request(words);
  ask_the_runtime(request.file);
  int cases = 0;
  Value list = Value::array();
  for (const Subject& subject : subjects_of(request)) {
    if (!request.list) check_testable(subject);
    for (const SuiteCase& c : suite_of(subject.kind)) {
      if (!fits(c.name, request.cases)) continue;
      ++cases;
      if (request.list && request.json)
        list.items().push_back(named_case(subject, c.name));
      else if (request.list)
        name_case(subject, c.name);
      else
        testing::RegisterTest((subject.kind + "/" + subject.name).c_str(), c.name.c_str(), nullptr, nullptr, __FILE__,
                              __LINE__, [=] { return new RunCase(subject, c); });
    }
  }
  if (cases == 0) throw fail(ErrorCode::config, "--case \"", request.cases, "\" fits no case; --list names them");
  if (request.list && request.json) std::cout << Value(Value::Object{{"cases", list}}).to_json(2) << "\n";
  return request.list ? 0 : run_cases(request);
}

// GoogleTest writes by stdio.
int check_output(int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout) return code;
  std::cerr << "drivetrain-conformance: cannot write to the standard output: it is full or closed\n";
  return code == 0 ? static_cast<int>(ErrorCode::io) : code;
}

}  // namespace
}  // namespace drivetrain::test

int main(int argc, char** argv) {
  using namespace drivetrain::test;
  testing::InitGoogleTest();
  on_exit(on_exit_by_others, nullptr);
  at_work = getpid();
  // The first such call must not come from two ranks at once (tools/commands/shared/math_threads.cpp).
  at::exp(at::ones({1}));
  int code = 1;
  try {
    code = check_output(run({argv + 1, argv + argc}));
  } catch (const drivetrain::Error& e) {
    std::cerr << e.what() << "\n";
    code = static_cast<int>(e.code());
  } catch (const std::exception& e) {
    std::cerr << "drivetrain-conformance: " << e.what() << "\n";
  }
  at_work = 0;
  return code;
}
