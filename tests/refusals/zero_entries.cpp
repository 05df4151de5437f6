// Its manifest promises an entry, its descriptor has none.
#include <drivetrain/plugin.h>

namespace {
const DrivetrainDescriptor empty = {
    kDrivetrainMagic, sizeof(DrivetrainDescriptor), kDrivetrainEntryLayout, drivetrain_manifest, nullptr, 0};
}
extern "C" __attribute__((visibility("default"))) const void* const drivetrain_plugin;
const void* const drivetrain_plugin = &empty;
