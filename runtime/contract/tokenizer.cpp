#include <drivetrain/tokenizer.h>

namespace drivetrain {

Tokenizer::~Tokenizer() = default;

std::string Tokenizer::recognizes(const std::string&) const { return {}; }

}  // namespace drivetrain
