// The exception that crosses the plugin border: its destructor lives here, so that vtable and type information exist
// once in the process.
#include <drivetrain/error.h>

namespace drivetrain {

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

Error::~Error() = default;

Error Error::within(const std::string& where) const { return Error(code_, "in " + where + ": " + what()); }

}  // namespace drivetrain
