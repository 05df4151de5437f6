// `drivetrain config schema`: for editors.
#include <iostream>

#include "app/commands.h"
#include "app/config_commands.h"
#include "base/printable.h"
#include "report/config_schema.h"

namespace drivetrain {

int schema_command(const cli::Arguments& arguments) {
  const Registry registry(search_path(RunSettings(), arguments.all("--plugin-path")));
  std::cout << printable_json(config_schema(registry).to_json(2)) << "\n";
  return 0;
}

}  // namespace drivetrain
