// Its entry gives no option table.
#include <drivetrain/monitor.h>

namespace {

const void* no_table() { return nullptr; }
void* create(const void*) { return nullptr; }

}  // namespace

DRIVETRAIN_PLUGINS(DrivetrainEntry{sizeof(DrivetrainEntry), "monitor", "toy", &no_table, &create})
