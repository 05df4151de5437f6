// The manual page, in roff's man macros.
#include "cli/commands.h"
#include "cli/help.h"

namespace drivetrain::cli {
namespace {

// A line of text: backslashes and dashes are letters, a dot or a quote does not begin a request.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '-') out += '\\';
    out += c == '\\' ? 'e' : c;
  }
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

}  // namespace

std::string manual_page(const std::string& release, std::span<const Command> others) {
  std::string text =
      ".TH DRIVETRAIN 1 \"\" \"drivetrain " + release + "\"\n.SH NAME\ndrivetrain \\- train language models\n";
  text += ".SH SYNOPSIS\n.B drivetrain\nCOMMAND [OPTION]...\n.SH COMMANDS\n";
  for (const Command* command : all_commands(others)) {
    text += ".SS " + escaped("drivetrain " + std::string(command->name)) + "\n" +
            escaped(std::string(command->summary)) + ".\n.PP\n.nf\n";
    for (const std::string& line : split(command_help(*command), '\n'))
      if (line != command->summary) text += escaped(line) + "\n";
    text += ".fi\n";
  }
  return text + ".SH ENVIRONMENT\n" + escaped(environment_text()) + "\n.SH EXIT STATUS\n" + escaped(exit_codes_text()) +
         "\n";
}

}  // namespace drivetrain::cli
