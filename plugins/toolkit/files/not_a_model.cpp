#include <drivetrain/toolkit/files/not_a_model.h>

#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>

namespace drivetrain {

std::string held_instead_of_model(const std::string& folder) {
  const std::filesystem::path place(folder);
  std::error_code unknown;
  for (const char* of_model : {"config.json", "model.safetensors", "model.safetensors.index.json"})
    if (std::filesystem::exists(place / of_model, unknown)) return "";
  if (std::filesystem::exists(place / "adapter_config.json", unknown))
    return "is the folder of an adapter (adapter_config.json), which holds what was added to a model\n   merge it: "
           "drivetrain checkpoint convert --to hf for a run, merge_and_unload of PEFT for others; or give the folder "
           "of "
           "its base as the model, and this one as from of strategy/lora";
  for (const std::string& name : names_in(folder, InFolder::files))
    if (std::filesystem::path(name).extension() == ".gguf")
      return concat("holds ", name, ", a file of llama.cpp, whose weights are mostly in few bits\n   give the Hugging ",
                    "Face folder that it was made from");
  return "";
}

}  // namespace drivetrain
