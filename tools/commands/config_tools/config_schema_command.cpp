// `drivetrain config schema`: for editors.
#include <iostream>

#include "base/printable.h"
#include "config_tools/config_commands.h"
#include "config_tools/config_schema.h"
#include "shared/commands.h"

namespace drivetrain {

int schema_command(const cli::Arguments& arguments) {
  const Registry registry(search_path(RunSettings(), arguments.all("--plugin-path")));
  std::cout << printable_json(config_schema(registry).to_json(2)) << "\n";
  return 0;
}

}  // namespace drivetrain
