// Which tokens of a text stand in parts of it. A tokenizer tells what its tokens decode to and not where they stand,
// and the two differ by blanks that are put in front, white space that added tokens take, and normalisers. Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <drivetrain/tokenizer.h>
#include <drivetrain/toolkit/chat/chat_template.h>

namespace drivetrain::instruction {

// For each of the ids, which are those of `text`, whether it stands for anything of a span. A blank that is put in
// front belongs to the character behind it, and white space to the token that took it. Nothing where tokens by
// themselves do not decode to what they are together.
std::optional<std::vector<char>> tokens_in_spans(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                                 std::string_view text, const std::vector<RenderedChat::Span>& spans);

}  // namespace drivetrain::instruction
