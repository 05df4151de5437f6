// The exception that crosses the plugin border and the log interface: their destructors live here, so that vtable and
// type information exist once in the process.
#include <drivetrain/error.h>
#include <drivetrain/log.h>

namespace drivetrain {

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

Error::~Error() = default;

Error Error::within(const std::string& where) const { return Error(code_, "in " + where + ": " + what()); }

Log::~Log() = default;

}  // namespace drivetrain
