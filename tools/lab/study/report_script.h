// What makes the page of a report answer: its data and its script. Without the script the page is whole, too.
#pragma once

#include <string>

#include "study/analysis.h"

namespace drivetrain::study {

// Cells with factors, figures and what they differ in from the reference, as an element of the page.
std::string page_data(const StudyRecord& study, const Analysis& analysis);
// Tables sort and filter, and a chart has a chosen factor on its x axis.
std::string page_script();

// What a cell changes that the reference does not, "optimizer.params.lr 0.002 instead of 0.001".
std::string difference_text(const CellRecord& cell, const CellRecord& reference);

}  // namespace drivetrain::study
