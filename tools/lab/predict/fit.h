// Constants of a machine and of profiles, fitted to rows of published tables, and how well rows are planned that were
// not fitted to. A plan's amounts do not depend on these constants, so rows are planned once. Pure.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "predict/profile.h"
#include "predict/step_time.h"

namespace drivetrain {

// All that a row's time follows from, beside its amounts.
struct FitConstants {
  Hardware hardware;
  std::map<std::string, Profile> profiles;  // by name
};

struct FitRow {
  std::string label, profile;
  std::string config;  // rows of one config are left out together
  double ranks = 1;
  StepWork work;   // as planned, without the profile
  double tgs = 0;  // as printed
};

// One number of them: what it is called, where it is from, and where it is kept.
struct FitConstant {
  std::string name, from;
  std::function<double&(FitConstants&)> at;
};
// Every one, with its place: of the machine, then of each profile that has a time.
DRIVETRAIN_INTERNAL std::vector<FitConstant> constants_of(const FitConstants& constants);

// planned / printed - 1
DRIVETRAIN_INTERNAL double tgs_error(const FitRow& row, const FitConstants& constants);

// With those constants that are said to be fitted as the rows need them; the others stay. What is made least is the sum
// of sqrt(1 + (ln(planned / printed) / 0.01)^2), in which a misprinted row weighs less than in a sum of squares.
DRIVETRAIN_INTERNAL FitConstants fitted(const std::vector<FitRow>& rows, FitConstants start);

// Errors of rows, by index, under constants that were fitted without any row of the same config; and the least and the
// greatest value that each fitted constant had in these fits.
struct LeftOut {
  std::vector<double> errors;
  std::map<std::string, std::pair<double, double>> ranges;
};
DRIVETRAIN_INTERNAL LeftOut leave_each_out(const std::vector<FitRow>& rows, const FitConstants& start);

}  // namespace drivetrain
