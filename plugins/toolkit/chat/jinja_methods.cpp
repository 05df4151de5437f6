// Methods of texts, objects and lists: those of Python that change nothing.
#include <algorithm>
#include <cctype>
#include <map>

#include <drivetrain/error.h>

#include "jinja_run.h"
#include "jinja_text.h"

namespace drivetrain::jinja {
namespace {

using Method = Var (*)(const Var& of, Call& call);
using Methods = std::map<std::string, Method, std::less<>>;

const std::string& text_at(Call& call, size_t place, std::string_view name) {
  return call.want(place, name).as_text("an argument of a text's method");
}

int64_t integer_or(const Call& call, size_t place, std::string_view name, int64_t otherwise) {
  const Var* const found = call.find(place, name);
  return found && !found->is_none() ? found->as_integer("an argument") : otherwise;
}

const std::string& self(const Var& of) { return *of.get<std::string>(); }

List list_of(const std::vector<std::string_view>& parts) {
  List list;
  for (const std::string_view part : parts) list.items.emplace_back(part);
  return list;
}

template <Side side>
Var strip(const Var& of, Call& call) {
  const Var* const set = call.find(0, "chars");
  const bool given = set && !set->is_none();
  return stripped(self(of), side, given ? &set->as_text("the characters to strip") : nullptr);
}

template <bool from_end>
Var split(const Var& of, Call& call) {
  const Var* const separator = call.find(0, "sep");
  const bool given = separator && !separator->is_none();
  return list_of(split_text(self(of), given ? &separator->as_text("the separator") : nullptr,
                            integer_or(call, 1, "maxsplit", -1), from_end));
}

Var splitlines(const Var& of, Call& call) {
  if (call.find(0, "keepends") && truth(*call.find(0, "keepends")))
    throw Problem{"splitlines with line ends is not supported in chat templates"};
  return list_of(lines_of(self(of)));
}

template <bool at_end>
Var has_affix(const Var& of, Call& call) {
  call.only({"prefix"});
  const Var& wanted = call.want(0, "prefix");
  const auto fits = [&](const Var& v) {
    const std::string& affix = v.as_text("what a text begins or ends with");
    return at_end ? self(of).ends_with(affix) : self(of).starts_with(affix);
  };
  if (const List* any = wanted.get<List>()) return std::any_of(any->items.begin(), any->items.end(), fits);
  return fits(wanted);
}

template <bool at_end>
Var without_affix(const Var& of, Call& call) {
  const std::string &text = self(of), &affix = text_at(call, 0, "prefix");
  if (at_end) return text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text;
  return text.starts_with(affix) ? text.substr(affix.size()) : text;
}

template <Case how>
Var change_case(const Var& of, Call&) {
  return in_case(self(of), how);
}

Var replace(const Var& of, Call& call) {
  return replaced(self(of), text_at(call, 0, "old"), text_at(call, 1, "new"), integer_or(call, 2, "count", -1));
}

template <bool from_end>
Var find(const Var& of, Call& call) {
  call.only({"sub"});
  const size_t at = from_end ? self(of).rfind(text_at(call, 0, "sub")) : self(of).find(text_at(call, 0, "sub"));
  return at == std::string::npos ? int64_t{-1} : length_of(std::string_view(self(of)).substr(0, at));
}

Var count(const Var& of, Call& call) {
  const std::string& part = text_at(call, 0, "sub");
  if (part.empty()) return length_of(self(of)) + 1;
  int64_t found = 0;
  for (size_t at = self(of).find(part); at != std::string::npos; at = self(of).find(part, at + part.size())) ++found;
  return found;
}

template <bool from_end>
Var partition(const Var& of, Call& call) {
  const std::string &text = self(of), &by = text_at(call, 0, "sep");
  const size_t at = from_end ? text.rfind(by) : text.find(by);
  if (at == std::string::npos) return from_end ? List{{"", "", text}, true, false} : List{{text, "", ""}, true, false};
  return List{{text.substr(0, at), by, text.substr(at + by.size())}, true, false};
}

Var join(const Var& of, Call& call) {
  std::string out;
  bool first = true;
  for (const Var& item : iterate(call.want(0, "iterable"))) {
    if (!first) out += self(of);
    out += item.as_text("what is joined");
    first = false;
  }
  return out;
}

// Of all characters of a text that is not empty. ASCII alone, since other letters need Unicode's tables.
template <int (*is)(int)>
Var all_are(const Var& of, Call&) {
  for (const char c : self(of))
    if (c & 0x80) throw Problem{"classes of characters beyond ASCII are not supported in chat templates"};
  return !self(of).empty() &&
         std::all_of(self(of).begin(), self(of).end(), [](char c) { return is(static_cast<unsigned char>(c)) != 0; });
}

Var is_space(const Var& of, Call&) { return !self(of).empty() && stripped(self(of), Side::both).empty(); }

// "{}", "{0}" and "{name}".
Var format(const Var& of, Call& call) {
  std::string out;
  size_t next = 0;
  bool has_numbers = false;
  const std::string& form = self(of);
  for (size_t at = 0; at < form.size(); ++at) {
    const char c = form[at];
    if (c != '{' && c != '}') {
      out += c;
    } else if (at + 1 < form.size() && form[at + 1] == c) {
      out += form[at++];
    } else {
      const size_t end = form.find('}', at);
      const std::string field = c == '{' && end != std::string::npos ? form.substr(at + 1, end - at - 1) : "!";
      if (field.find_first_of("!:.[{") != std::string::npos)
        throw Problem{concat("format: only {}, {0} and {name} are supported in chat templates, found ", form)};
      const bool numbered = !field.empty() && field.find_first_not_of("0123456789") == std::string::npos;
      if ((numbered && next > 0) || (field.empty() && has_numbers))
        throw Problem{"format: {} and {0} stand in one text"};
      has_numbers = has_numbers || numbered;
      const size_t place = field.empty() ? next++ : numbered ? std::stoul(field) : call.args.size();
      out += str(call.want(place, field));
      at = end;
    }
  }
  return out;
}

List members_of(const Dict& dict) {
  List list;
  for (const auto& [key, value] : dict.members) list.items.push_back(List{{key, value}, true, false});
  return list;
}

Var items(const Var& of, Call&) { return members_of(*of.get<Dict>()); }
Var keys(const Var& of, Call&) { return List{iterate(of), false, false}; }
Var values(const Var& of, Call&) {
  List list;
  for (const auto& [key, value] : of.get<Dict>()->members) list.items.push_back(value);
  return list;
}
Var get(const Var& of, Call& call) {
  const auto* const key = call.want(0, "key").get<std::string>();
  if (const Var* const found = key ? of.get<Dict>()->find(*key) : nullptr) return *found;
  const Var* const otherwise = call.find(1, "default");
  return otherwise ? *otherwise : Var();
}
Var copy(const Var& of, Call&) { return of; }

Var index(const Var& of, Call& call) {
  const std::vector<Var>& list = of.get<List>()->items;
  for (size_t i = 0; i < list.size(); ++i)
    if (equal(list[i], call.want(0, "value"))) return static_cast<int64_t>(i);
  throw Problem{"index: the value is not in the list"};
}
Var count_items(const Var& of, Call& call) {
  const std::vector<Var>& list = of.get<List>()->items;
  return static_cast<int64_t>(
      std::count_if(list.begin(), list.end(), [&](const Var& item) { return equal(item, call.want(0, "value")); }));
}

const Methods kTexts = {{"strip", strip<Side::both>},
                        {"lstrip", strip<Side::left>},
                        {"rstrip", strip<Side::right>},
                        {"split", split<false>},
                        {"rsplit", split<true>},
                        {"splitlines", splitlines},
                        {"startswith", has_affix<false>},
                        {"endswith", has_affix<true>},
                        {"removeprefix", without_affix<false>},
                        {"removesuffix", without_affix<true>},
                        {"upper", change_case<Case::upper>},
                        {"lower", change_case<Case::lower>},
                        {"title", change_case<Case::title>},
                        {"capitalize", change_case<Case::capital>},
                        {"replace", replace},
                        {"find", find<false>},
                        {"rfind", find<true>},
                        {"count", count},
                        {"partition", partition<false>},
                        {"rpartition", partition<true>},
                        {"join", join},
                        {"isdigit", all_are<std::isdigit>},
                        {"isalpha", all_are<std::isalpha>},
                        {"isalnum", all_are<std::isalnum>},
                        {"isspace", is_space},
                        {"format", format}};
const Methods kObjects = {{"items", items}, {"keys", keys}, {"values", values}, {"get", get}, {"copy", copy}};
const Methods kLists = {{"index", index}, {"count", count_items}, {"copy", copy}};

// Python has these, and the sandbox of transformers refuses those that change something.
constexpr std::string_view kRefused[] = {"append", "extend", "insert",     "pop",  "popitem", "remove",
                                         "clear",  "update", "setdefault", "sort", "reverse"};
constexpr std::string_view kTextMethodsElsewhere[] = {
    "index",     "rindex",  "ljust",   "rjust",     "center",    "zfill",   "encode",     "casefold",  "swapcase",
    "translate", "isupper", "islower", "isnumeric", "isdecimal", "istitle", "expandtabs", "format_map"};

Var refused(const std::string& name, const Var& of, const char* why) {
  return Callable{name, [name, type = of.type_name(), why](Call&) -> Var {
                    throw Problem{concat("the template calls the method \"", name, "\" of ", type, ", which ", why)};
                  }};
}

}  // namespace

std::shared_ptr<const Callable> method_of(const Var& of, const std::string& name) {
  const Methods* const methods = of.get<std::string>() ? &kTexts
                                 : of.get<Dict>()      ? &kObjects
                                 : of.get<List>()      ? &kLists
                                                       : nullptr;
  if (!methods) return nullptr;
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  const auto callable = [](const Var& v) { return std::make_shared<const Callable>(*v.get<Callable>()); };
  if (const auto found = methods->find(name); found != methods->end())
    return std::make_shared<const Callable>(
        Callable{name, [of, method = found->second](Call& call) { return method(of, call); }});
  const bool is_text = methods == &kTexts;
  if (!is_text && has(kRefused) && !(of.get<Dict>() && of.get<Dict>()->find(name)))
    return callable(refused(name, of, "changes it: templates may not do so"));
  if (is_text && has(kTextMethodsElsewhere)) return callable(refused(name, of, "is not supported in chat templates"));
  return nullptr;
}

// Python's %-formatting, of %s, %d and %r.
std::string formatted(const std::string& form, const Var& arguments) {
  const List* const list = arguments.get<List>() && arguments.get<List>()->tuple ? arguments.get<List>() : nullptr;
  const std::vector<Var> values = list ? list->items : std::vector<Var>{arguments};
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < form.size(); ++at) {
    if (form[at] != '%') {
      out += form[at];
      continue;
    }
    const char kind = ++at < form.size() ? form[at] : '\0';
    if (kind == '%') {
      out += '%';
      continue;
    }
    if (kind != 's' && kind != 'd' && kind != 'r')
      throw Problem{concat("%: only %s, %d, %r and %% are supported in chat templates, found ", form)};
    if (next == values.size()) throw Problem{"%: there are fewer values than places for them"};
    const Var& value = values[next++];
    out += kind == 's' ? str(value) : kind == 'r' ? repr(value) : std::to_string(value.as_integer("%d"));
  }
  if (next < values.size() && !arguments.get<Dict>()) throw Problem{"%: there are more values than places for them"};
  return out;
}

}  // namespace drivetrain::jinja
