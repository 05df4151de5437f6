// Its manifest speaks of this door, its code was compiled for the next one.
#include <drivetrain/plugin.h>

namespace {
const DrivetrainDescriptor next = {
    kDrivetrainMagic, sizeof(DrivetrainDescriptor), kDrivetrainEntryLayout + 1, drivetrain_manifest, nullptr, 0};
}
extern "C" __attribute__((visibility("default"))) const void* const drivetrain_plugin;
const void* const drivetrain_plugin = &next;
