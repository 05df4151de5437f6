#include <drivetrain/testkit/kit/results.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::test {
namespace conformance_results {

Value strings(const std::vector<std::string>& list) {
  Value value = Value::array();
  for (const std::string& text : list) value.items().push_back(text);
  return value;
}

// A plugin's message may hold anything.
std::string xml(const std::string& raw) {
  std::string text, escaped;
  append_replaced(raw, text);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else if (c == '\n')
      escaped += "&#10;";
    else
      escaped += byte < 0x20 && c != '\t' ? '?' : c;
  }
  return escaped;
}

std::string case_text(const CaseResult& result) {
  std::string text = concat("    <testcase classname=\"", xml(result.plugin), "\" name=\"", xml(result.name),
                            "\" time=\"", formatted("%.3f", result.seconds), "\">\n");
  for (const std::string& failure : result.failures)
    text += concat("      <failure message=\"", xml("broken: " + result.promise.text()), "\">", xml(failure),
                   "</failure>\n");
  std::string out;
  for (const LeftOut& one : result.left_out) out += concat("left out: ", one.what, " (", one.why, ")\n");
  if (!out.empty()) text += "      <system-out>" + xml(out) + "</system-out>\n";
  return text + "    </testcase>\n";
}

size_t failed(const std::vector<CaseResult>& results) {
  return static_cast<size_t>(
      std::count_if(results.begin(), results.end(), [](const CaseResult& r) { return !r.failures.empty(); }));
}

}  // namespace conformance_results

Value results_value(const std::vector<CaseResult>& results) {
  Value cases = Value::array();
  for (const CaseResult& result : results) {
    Value left = Value::array();
    for (const LeftOut& one : result.left_out)
      left.items().push_back(Value::Object{{"what", one.what}, {"why", one.why}});
    cases.items().push_back(Value::Object{{"plugin", result.plugin},
                                          {"case", result.name},
                                          {"contract", result.promise.header},
                                          {"sentence", result.promise.sentence},
                                          {"passed", result.failures.empty()},
                                          {"seconds", result.seconds},
                                          {"failures", conformance_results::strings(result.failures)},
                                          {"left_out", left}});
  }
  return Value::Object{{"passed", conformance_results::failed(results) == 0}, {"cases", cases}};
}

std::string junit_text(const std::vector<CaseResult>& results) {
  using namespace conformance_results;
  std::vector<std::string> plugins;
  for (const CaseResult& result : results)
    if (plugins.empty() || plugins.back() != result.plugin) plugins.push_back(result.plugin);
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  text += concat("<testsuites tests=\"", results.size(), "\" failures=\"", failed(results), "\">\n");
  for (const std::string& plugin : plugins) {
    std::vector<CaseResult> own;
    double seconds = 0;
    for (const CaseResult& result : results)
      if (result.plugin == plugin) own.push_back(result), seconds += result.seconds;
    text += concat("  <testsuite name=\"", xml(plugin), "\" tests=\"", own.size(), "\" failures=\"", failed(own),
                   "\" errors=\"0\" skipped=\"0\" time=\"", formatted("%.3f", seconds), "\">\n");
    for (const CaseResult& result : own) text += case_text(result);
    text += "  </testsuite>\n";
  }
  return text + "</testsuites>\n";
}

void Collector::OnTestStart(const testing::TestInfo& test) {
  take_left_out();
  const std::string plugin = test.test_suite_name(), kind = plugin.substr(0, plugin.find('/'));
  results_.push_back({plugin, test.name(), promise_of(kind, test.name()), 0, {}, {}});
}

void Collector::OnTestPartResult(const testing::TestPartResult& part) {
  if (part.failed() && !results_.empty()) results_.back().failures.emplace_back(part.message());
}

void Collector::OnTestEnd(const testing::TestInfo& test) {
  CaseResult& result = results_.back();
  result.seconds = static_cast<double>(test.result()->elapsed_time()) / 1000;  // Waits: it is only told
  result.left_out = take_left_out();
  if (quiet_ || result.failures.empty() || result.promise.sentence.empty()) return;
  std::printf("[ CONTRACT ] broken: %s\n", result.promise.text().c_str());
}

void Collector::OnTestSuiteEnd(const testing::TestSuite& suite) {
  if (quiet_) return;
  std::vector<LeftOut> all;
  for (const CaseResult& result : results_)
    if (result.plugin == suite.name())
      for (const LeftOut& one : result.left_out)
        if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  for (const LeftOut& one : all) std::printf("[ LEFT OUT ] %s: %s\n", one.what.c_str(), one.why.c_str());
}

}  // namespace drivetrain::test
