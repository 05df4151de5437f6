// Rows of a published table over their ranks as a picture: tokens per rank and second as planned (lines) and as printed
// (rings). Pure.
#pragma once

#include <string>

#include "planner/table_report.h"

namespace drivetrain {

// An SVG. Error(config): no two rows with a printed speed differ in their ranks alone, so that nothing scales.
DRIVETRAIN_INTERNAL std::string scaling_chart(const PublishedTable& table, const TableResult& result);

}  // namespace drivetrain
