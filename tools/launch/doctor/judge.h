// What of a survey of hosts is in order, deserves a word, or keeps a run from working.
#pragma once

#include "findings/findings.h"
#include "launch/doctor/survey.h"

namespace drivetrain::program {

// A line for each host, and what doctor found wrong there; what several hosts have in common once.
void judge_hosts(Findings& findings, const SurveyReport& survey);

// Files of the program, plugins and LibTorch have to be the same everywhere; what else differs is told.
void judge_differences(Findings& findings, const SurveyReport& survey);

// Clocks, and which host reaches which.
void judge_clocks(Findings& findings, const SurveyReport& survey);
void judge_pairs(Findings& findings, const SurveyReport& survey);

struct RanksRequest {
  int64_t per_host = 0;
  std::string program;
  std::vector<std::string> options;  // of `drivetrain launch --bench collectives`
};
// Runs every collective over ranks on all hosts, which compare the values, if there are no problems yet. Returns the
// benchmark's report; null without one.
Value judge_ranks(Findings& findings, const SurveyReport& survey, const RanksRequest& request);

// Everything as one object, beside the findings' own.
Value survey_value(const SurveyReport& survey, const Findings& findings);

}  // namespace drivetrain::program
