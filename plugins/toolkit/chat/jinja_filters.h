// Filters by name.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "jinja_run.h"

namespace drivetrain::jinja {

using Filter = Var (*)(Call&);
using Filters = std::map<std::string, Filter, std::less<>>;

const Filters& list_filters();

}  // namespace drivetrain::jinja
