// What `drivetrain doctor --hostfile` makes of clocks and of pairs of hosts. hosts_doctor_test.py has the rest.
#include <gtest/gtest.h>

#include "launch/doctor/judge.h"

namespace drivetrain::program {
namespace {

SurveyReport hosts(const std::vector<std::string>& names) {
  SurveyReport survey;
  for (const std::string& name : names) {
    HostReport host;
    host.name = name, host.listens_at = "10.0.0." + std::to_string(survey.hosts.size() + 1), host.port = 4000;
    survey.hosts.push_back(std::move(host));
  }
  return survey;
}

std::string clocks_text(const std::vector<ClockOffset>& offsets) {
  SurveyReport survey = hosts(std::vector<std::string>(offsets.size(), "host"));
  for (size_t i = 0; i < offsets.size(); ++i) {
    survey.hosts[i].name = std::string(1, static_cast<char>('a' + i));
    survey.hosts[i].clock = offsets[i];
  }
  Findings findings;
  judge_clocks(findings, survey);
  return findings.text();
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Clocks, the_fastest_answer_counts_and_bounds_the_error) {
  constexpr int64_t kAhead = 3'000'000'000;
  // There and back in 8 ms, 2 ms and 6 ms; the second one's way back took all of the time.
  const ClockOffset offset = clock_offset({{0, kAhead + 1'000'000, 8'000'000},
                                           {20'000'000, kAhead + 20'000'000, 22'000'000},
                                           {30'000'000, kAhead + 36'000'000, 36'000'000}});
  EXPECT_NEAR(offset.within_s, 0.001, 1e-9);
  EXPECT_NEAR(offset.ahead_s, 2.999, 1e-9);  // the truth is as far away as it can be
}

TEST(Clocks, one_that_is_wrong_is_named_beside_most_others) {
  const std::string wrong = clocks_text({{0.001, 0.0002}, {-7, 0.0003}, {0.002, 0.0002}, {0.001, 0.0002}});
  EXPECT_SAYS(wrong, "the clock of b is 7.00 s behind most others (+-500 us)");
  EXPECT_SAYS(wrong, "timedatectl");
  EXPECT_EQ(wrong.find("clock of a"), std::string::npos) << wrong;
  EXPECT_SAYS(clocks_text({{0.001, 0.0002}, {-0.003, 0.0003}}), "at most 4.0 ms apart, b and a (+-500 us)");
  // Over a slow connection nobody can say that it is wrong.
  EXPECT_EQ(clocks_text({{0, 0.0002}, {0.9, 0.6}}).find("warning "), std::string::npos);
}

void add_pairs(SurveyReport& survey, const std::function<std::string(size_t, size_t)>& problem) {
  for (size_t from = 0; from < survey.hosts.size(); ++from)
    for (size_t to = 0; to < survey.hosts.size(); ++to)
      if (from != to) survey.pairs.push_back({from, to, problem(from, to), 0.001});
}

TEST(Pairs, a_host_that_nobody_reaches_is_one_problem) {
  SurveyReport survey = hosts({"a", "b", "c", "d"});
  add_pairs(survey, [](size_t from, size_t to) {
    return to == 2 ? "Connection timed out" : from == 0 && to == 1 ? "Connection refused" : "";
  });
  Findings findings;
  judge_pairs(findings, survey);
  EXPECT_EQ(findings.count(Finding::problem), 2U) << findings.text();
  EXPECT_SAYS(findings.text(),
              "none of the other 3 hosts reaches c at 10.0.0.3 port 4000; from a: Connection timed out");
  EXPECT_SAYS(findings.text(), "a does not reach b at 10.0.0.2 port 4000: Connection refused");
  EXPECT_SAYS(findings.text(), "8 of 12 pairs of hosts connect, in at most 1.0 ms");
  EXPECT_EQ(findings.exit_code(), 5);
}

TEST(Pairs, a_host_that_reaches_nobody_is_one_problem) {
  SurveyReport survey = hosts({"a", "b", "c"});
  add_pairs(survey, [](size_t from, size_t) { return from == 1 ? "Network is unreachable" : ""; });
  Findings findings;
  judge_pairs(findings, survey);
  EXPECT_EQ(findings.count(Finding::problem), 1U) << findings.text();
  EXPECT_SAYS(findings.text(), "b reaches none of the other 2 hosts; a: Network is unreachable");
  EXPECT_SAYS(findings.text(), "`ip route get 10.0.0.1` on b");
}

TEST(Pairs, two_names_of_one_host) {
  SurveyReport survey = hosts({"a", "b", "again"});
  survey.hosts[2].listens_at = survey.hosts[0].listens_at;
  Findings findings;
  judge_pairs(findings, survey);
  EXPECT_EQ(findings.exit_code(), 2);
  EXPECT_SAYS(findings.text(), "the hosts a, again have the same address towards others: 10.0.0.1");
}

}  // namespace
}  // namespace drivetrain::program
