// drivetrain-conformance: the suites over the plugins of one library, in or out of this tree.
//
// Exit codes are the contract's: 0 all cases passed, 1 one did not, 2 usage or options, 3 a plugin that is refused or
// whose kind has no suite.
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <drivetrain/testkit/communicator/suite.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/train.h>

namespace drivetrain::test {
namespace {

// Who reads what was never written or was freed, reads NaN.
const PoisonedMemory poisoned;

constexpr const char* kUsage =
    R"(usage: drivetrain-conformance PLUGIN.so [KIND/NAME] [--options JSON] [--ranks-multiple N] [--case PATTERN]
                              [--list]

Runs the conformance suite of its kind over every plugin of the library, or over the one that is named.
  --options JSON       options of the plugin, as in "params" of a config; {} without it
  --ranks-multiple N   the options allow numbers of ranks that N divides; the suite uses up to 4 or 8
  --case PATTERN       only cases whose name fits, with * and ?; several with : between them
  --list               names the cases and runs none
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
  std::string file, plugin, cases = "*";
  Value options = Value::object();
  int64_t rank_multiple = 1;
  bool list = false;
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
    else if (word == "--list")
      request.list = true;
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
  return request;
}

// The runtime's own judgement of the file: a library of another build is refused with its reason before it is opened.
void ask_the_runtime(const std::string& file) {
  if (std::filesystem::is_directory(file))
    throw fail(ErrorCode::plugin, file, " is a folder; name one library in it, KIND_NAME.so");
  const Output answer = run_program({"inspect", file});
  if (answer.code != 0) throw fail(static_cast<ErrorCode>(answer.code), answer.text);
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Options that the plugin does not know are usage; what it says to their values is for the cases, which add some.
void check_names(const Value& options, const Plugins::Name& entry) {
  const OptionTable& table = installed_plugins().options(entry.kind, entry.name);
  for (const Value::Member& m : options.members())
    if (!table.find(m.key)) throw fail(ErrorCode::config, "--options: ", m.key, " is no option of ", entry.text());
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
      check_names(request.options, entry);
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

int run(const std::vector<std::string>& words) {
  const bool asks = std::any_of(words.begin(), words.end(), [](const auto& w) { return w == "--help" || w == "-h"; });
  if (words.empty() || asks) {
    (asks ? std::cout : std::cerr) << kUsage;
    return asks ? 0 : 2;
  }
  const Request request = read_request(words);
  ask_the_runtime(request.file);
  int cases = 0;
  for (const Subject& subject : subjects_of(request)) {
    if (!request.list) check_testable(subject);
    for (const SuiteCase& c : suite_of(subject.kind)) {
      if (!fits(c.name, request.cases)) continue;
      ++cases;
      if (request.list)
        std::cout << subject.kind << "/" << subject.name << " " << c.name << "\n";
      else
        testing::RegisterTest((subject.kind + "/" + subject.name).c_str(), c.name.c_str(), nullptr, nullptr, __FILE__,
                              __LINE__, [=] { return new RunCase(subject, c); });
    }
  }
  if (cases == 0) throw fail(ErrorCode::config, "--case \"", request.cases, "\" fits no case; --list names them");
  return request.list ? 0 : RUN_ALL_TESTS();
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
