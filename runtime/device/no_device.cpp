#include "device/no_device.h"

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

std::string version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

std::string remedy(const NoDevice& facts) {
  const std::string or_cpu = ", or use \"device\": \"cpu\"";
  if (facts.driver > 0 && facts.driver / 1000 < facts.wanted / 1000)
    return concat("install a driver of CUDA ", facts.wanted / 1000, " (nvidia-smi shows the one at hand)", or_cpu);
  if (facts.is_set && !facts.on_host.empty())
    return concat(
        "CUDA_VISIBLE_DEVICES=", facts.visible, " shows none of the ", facts.on_host.size(),
        " of this host, which are ", join(facts.on_host, ", "),
        "\n   it may be that of another host: leave it out, or name one of these by its number (from 0 on) or UUID",
        or_cpu);
  return concat("check with nvidia-smi, and that CUDA_VISIBLE_DEVICES",
                facts.is_set ? concat(" (here \"", facts.visible, "\")") : "", " hides nothing", or_cpu);
}

}  // namespace

Error no_device(const NoDevice& facts) {
  return fail(ErrorCode::config,
              "\"device\": \"cuda\" needs a GPU, and there is none to use\n   the CUDA runtime says ", facts.said,
              "\n   driver ", facts.driver == 0 ? "none found (libcuda.so.1)" : "of CUDA " + version_text(facts.driver),
              ", wanted CUDA ", version_text(facts.wanted), " or newer\n   ", remedy(facts));
}

std::string visible_text(const char* visible) {
  if (!visible) return "";
  return concat(" (CUDA_VISIBLE_DEVICES=", visible,
                "; CUDA reads it up to the first entry that this host does not have)");
}

}  // namespace drivetrain
