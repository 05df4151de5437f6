// at::cat takes an at::ITensorListRef: LibTorch's ATen/DeviceGuard.h brings it, the one in the folder above does not.
#pragma once
#include <ATen/core/IListRef.h>
#include_next <ATen/ops/cat.h>
