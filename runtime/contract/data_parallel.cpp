#include <drivetrain/data_parallel.h>

namespace drivetrain {

DataParallel::~DataParallel() = default;

}  // namespace drivetrain
