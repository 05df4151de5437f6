#include <bit>
#include <optional>

#include <drivetrain/error.h>

#include "pattern.h"
#include "unicode.h"

namespace drivetrain::bpe {
namespace {

using Alternatives = std::vector<PatternItems>;

// The characters of each category.
const std::vector<CharacterSet>& sets_of_categories() {
  static const std::vector<CharacterSet> sets = [] {
    std::vector<CharacterSet> made(32);
    for (uint32_t c = 0; c < kCodePoints; ++c) made[static_cast<size_t>(std::countr_zero(category(c)))].add(c);
    return made;
  }();
  return sets;
}

// Limits far above every published pattern. Parsing and matching call themselves for what is in a group and behind an
// element, so without limits a stranger's file could use up the stack.
constexpr int kMostDepth = 64, kMostElements = 1000;

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Alternatives whole() {
    if (valid_utf8(text_) != text_.size()) throw unknown("text that is not UTF-8");
    Alternatives found = alternatives(false);
    if (at_ != text_.size()) throw unknown("')' without '('");
    return found;
  }

 private:
  Error unknown(const std::string& what) const {
    return fail(ErrorCode::config, where_, ": the pattern ", shown_pattern(text_), " has ", what, " at character ",
                at_ + 1, ", which this version does not know");
  }
  bool ends() const { return at_ >= text_.size(); }
  bool next_is(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!next_is(word)) return false;
    at_ += word.size();
    return true;
  }
  uint32_t character() {
    if (ends()) throw unknown("an end that is too early");
    const CodePoint one = code_point(text_, at_);
    at_ += one.length;
    return one.value;
  }

  // Everything up to ')' or the end. `any_case`: inside (?i:
  Alternatives alternatives(bool any_case) {
    Alternatives list;
    do list.push_back(sequence(any_case));
    while (take("|"));
    return list;
  }

  PatternItems sequence(bool any_case) {
    PatternItems items;
    while (!ends() && !next_is("|") && !next_is(")")) items.push_back(element(any_case));
    return items;
  }

  PatternItem element(bool any_case) {
    if (++elements_ > kMostElements) throw unknown(concat("more than ", kMostElements, " elements"));
    if (next_is("(?=") || next_is("(?!")) return lookahead(any_case);
    if (take("(?i:")) return group(true);
    if (take("(?:") || (!next_is("(?") && take("("))) return group(any_case);
    if (next_is("(")) throw unknown("this form of a group");
    PatternItem item;
    item.set = one_set(any_case);
    repeat(item);
    return item;
  }

  PatternItem lookahead(bool any_case) {
    PatternItem item;
    item.kind = next_is("(?=") ? PatternItem::Kind::ahead : PatternItem::Kind::not_ahead;
    at_ += 3;
    item.set = one_set(any_case);
    if (!take(")")) throw unknown("a lookahead of more than one character");
    return item;
  }

  // Behind its opening. It stands once, or with '?' once or not at all.
  PatternItem group(bool any_case) {
    PatternItem item;
    item.kind = PatternItem::Kind::group;
    if (++depth_ > kMostDepth) {
      --at_;
      throw unknown(concat("more than ", kMostDepth, " groups within each other"));
    }
    item.group = alternatives(any_case);
    --depth_;
    if (!take(")")) throw unknown("'(' without ')'");
    if (next_is("*") || next_is("+") || next_is("{") || next_is("??") || next_is("?+"))
      throw unknown("a group that is repeated");
    if (take("?")) item.least = 0;
    return item;
  }

  void repeat(PatternItem& item) {
    if (take("?")) {
      item.least = 0;
    } else if (take("*")) {
      item.least = 0, item.most = kNoLimit;
    } else if (take("+")) {
      item.most = kNoLimit;
    } else if (take("{")) {
      item.least = number();
      item.most = item.least;
      if (take(",")) item.most = next_is("}") ? kNoLimit : number();
      if (!take("}") || item.most < item.least || item.most == 0) throw unknown("these numbers of repeats");
      if (next_is("+") || next_is("?") || next_is("*")) throw unknown("a repeat of a repeat");
      return;
    } else {
      return;
    }
    if (take("+")) item.kind = PatternItem::Kind::possessive;
    if (next_is("+") || next_is("?") || next_is("*") || next_is("{")) throw unknown("a repeat of a repeat");
  }

  uint32_t number() {
    uint32_t value = 0;
    const size_t begin = at_;
    while (!ends() && text_[at_] >= '0' && text_[at_] <= '9' && value < 100'000)
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    if (at_ == begin) throw unknown("no number of repeats");
    return value;
  }

  std::shared_ptr<const CharacterSet> one_set(bool any_case) {
    if (ends()) throw unknown("an end that is too early");
    auto set = std::make_shared<CharacterSet>();
    if (take("[")) {
      bracket(*set, any_case);
    } else if (take("\\")) {
      if (const auto single = escape(*set)) add(*set, *single, *single, any_case);
    } else if (std::string_view("^$.*+?{}()|").find(text_[at_]) != std::string_view::npos) {
      throw unknown(concat("'", text_[at_], "'"));
    } else {
      const uint32_t c = character();
      add(*set, c, c, any_case);
    }
    for (const auto& same : sets_)
      if (*same == *set) return same;
    return sets_.emplace_back(std::move(set));
  }

  // Behind '['.
  void bracket(CharacterSet& set, bool any_case) {
    const bool inverted = take("^");
    for (bool first = true; first || !next_is("]"); first = false) {
      if (ends()) throw unknown("'[' without ']'");
      if (next_is("[") || next_is("&&") || (first && next_is("]"))) throw unknown("this in a set of characters");
      const auto low = in_bracket(set);
      if (!low) continue;
      uint32_t high = *low;
      if (next_is("-") && !next_is("-]")) {
        ++at_;
        const auto end = in_bracket(set);
        if (!end || *end < *low) throw unknown("this range");
        high = *end;
      }
      add(set, *low, high, any_case);
    }
    take("]");
    if (inverted) set.invert();
  }
  std::optional<uint32_t> in_bracket(CharacterSet& set) { return take("\\") ? escape(set) : character(); }

  // Behind '\': one character, or a class, which is added to `set`.
  std::optional<uint32_t> escape(CharacterSet& set) {
    const uint32_t letter = character();
    switch (letter) {
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 's':
        return add_spaces(set, false);
      case 'S':
        return add_spaces(set, true);
      case 'd':
        return add_categories(set, *categories_named("Nd"), false);
      case 'D':
        return add_categories(set, *categories_named("Nd"), true);
      case 'p':
      case 'P':
        return property(set, letter == 'P');
      default:
        break;
    }
    const bool sign = letter < 128 && !(letter >= '0' && letter <= '9') && !(letter >= 'A' && letter <= 'Z') &&
                      !(letter >= 'a' && letter <= 'z');
    if (!sign) throw unknown(concat("'\\", text_[at_ - 1], "'"));
    return letter;
  }

  std::optional<uint32_t> property(CharacterSet& set, bool inverted) {
    const size_t close = text_.find('}', at_);
    if (!next_is("{") || close == std::string_view::npos) throw unknown("\\p without a name in braces");
    std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    if (name.starts_with('^')) name.remove_prefix(1), inverted = !inverted;
    const auto wanted = categories_named(name);
    if (!wanted) throw unknown(concat("the property \\p{", name, "}"));
    at_ = close + 1;
    return add_categories(set, *wanted, inverted);
  }

  static std::optional<uint32_t> add_categories(CharacterSet& set, CategorySet wanted, bool inverted) {
    CharacterSet found;
    for (; wanted != 0; wanted &= wanted - 1)
      found.add(sets_of_categories()[static_cast<size_t>(std::countr_zero(wanted))]);
    if (inverted) found.invert();
    set.add(found);
    return std::nullopt;
  }
  static std::optional<uint32_t> add_spaces(CharacterSet& set, bool inverted) {
    CharacterSet found;
    add_categories(found, *categories_named("Z"), false);
    for (uint32_t c = 0; c < 0x100; ++c)
      if (is_space(c)) found.add(c);
    if (inverted) found.invert();
    set.add(found);
    return std::nullopt;
  }

  void add(CharacterSet& set, uint32_t first, uint32_t last, bool any_case) {
    set.add(first, last);
    if (!any_case) return;
    for (uint32_t c = first; c <= last; ++c) {
      const uint32_t lower = c | 0x20;
      if (c >= 128) throw unknown("a letter beyond ASCII in a group without case");
      if (lower < 'a' || lower > 'z') continue;
      set.add(lower), set.add(lower ^ 0x20);
      if (lower == 's') set.add(0x17F);   // the long s
      if (lower == 'k') set.add(0x212A);  // the sign of Kelvin
    }
  }

  const std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0, elements_ = 0;
  std::vector<std::shared_ptr<const CharacterSet>> sets_;  // all so far: equal ones are one
};

}  // namespace

std::string shown_pattern(std::string_view expression) {
  if (expression.size() <= 300) return std::string(expression);
  return std::string(expression.substr(0, valid_utf8(expression.substr(0, 200)))) + "...";
}

std::vector<PatternItems> parse_pattern(std::string_view expression, const std::string& where) {
  return Parser(expression, where).whole();
}

}  // namespace drivetrain::bpe
