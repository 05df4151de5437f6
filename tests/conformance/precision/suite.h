// What every precision must do, and a run without one: whole runs beside float32 ones, masters that lose nothing,
// gradients that are added up in their own type.
#pragma once

#include <string>

#include <drivetrain/services.h>

#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {

struct PrecisionCase {
  std::string section;  // of the configuration: "\"bf16\": {\"enabled\": true}"; empty for none
  Dtypes dtypes;
  std::string own_type;       // DeepSpeed's name of the parameters' type
  double loss_rel, norm_rel;  // how near a run stays to float32's
  double narrow_norm_rel;     // norms where gradients are added up in the parameters' type too
};

// The model of the suite in `folder/name`. `more`: further members of the config, as text.
Value precision_config(const TempFolder& folder, const std::string& name, const std::string& more);
double figure(const TrainedRun& run, size_t step, const char* name);
void expect_same_curve(const TrainedRun& ours, const TrainedRun& float32, double loss_rel, double norm_rel);

// The case of a plugin follows from the type of its parameters: float16 and bfloat16 are known.
Suite precision_suite();
void run_precision_suite(const PrecisionCase& c, const TrainFunction& train);

}  // namespace drivetrain::test
