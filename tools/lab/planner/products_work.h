// What plugins say of the products of blocks (DtypePlan::products), as operations and passes of a step.
#pragma once

#include "internal.h"
#include "plan/run_plan.h"
#include "predict/shape_work.h"

namespace drivetrain {

// `work`: has its shape, and so many cuts. Products in 8 bits have their type and casts; passes that casts or the
// epilogues of products compute are taken off.
DRIVETRAIN_INTERNAL void add_products_work(StepWork& work, const RunPlan& plan, const ModelShape& shape,
                                           const ShapeCuts& cuts);

}  // namespace drivetrain
