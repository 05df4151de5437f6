#include "chat_template.h"

#include <drivetrain/error.h>

namespace drivetrain::instruction {
namespace {

ChatTemplate chat_ml() {
  ChatTemplate t;
  t.separator = "\n";
  for (const char* role : {"system", "user", "assistant"})
    t.roles[role] = {concat("<|im_start|>", role, "\n"), "<|im_end|>"};
  return t;
}

Error wrong(const Value& at, const std::string& what) {
  return fail(ErrorCode::config, "dataset/instruction: ", at.where.file.empty() ? "template" : at.where.text(), ": ",
              what);
}

// Calls use(key, value) for what is in the object.
template <class Use>
void each(const Value& object, const std::string& name, const Use& use) {
  if (!object.is_object())
    throw wrong(object, concat(name, " is ", object.type_name(),
                               "; wanted \"tokenizer\", \"chatml\" or an object. Jinja is named by template_file"));
  for (const auto& [key, value] : object.members()) use(key, value);
}

const std::string& text_of(const Value& value, const std::string& name) {
  if (!value.is_string()) throw wrong(value, concat(name, " is ", value.type_name(), "; wanted a text"));
  return value.as_string();
}

ChatTemplate::Role read_role(const Value& value, const std::string& name) {
  ChatTemplate::Role role;
  each(value, name, [&](const std::string& key, const Value& v) {
    if (key == "prefix")
      role.prefix = text_of(v, concat(name, ".prefix"));
    else if (key == "suffix")
      role.suffix = text_of(v, concat(name, ".suffix"));
    else
      throw wrong(v, concat("\"", key, "\" is no key of ", name, "; known are prefix and suffix"));
  });
  return role;
}

}  // namespace

std::string ChatTemplate::role_names() const {
  std::string names;
  for (const auto& [name, role] : roles) names += (names.empty() ? "" : ", ") + name;
  return names;
}

ChatTemplate read_template(const Value& value) {
  if (value.is_null() || (value.is_string() && value.as_string() == "chatml")) return chat_ml();
  ChatTemplate t;
  each(value, "template", [&](const std::string& key, const Value& v) {
    if (key == "bos")
      t.bos = v.is_null() ? std::nullopt : std::optional(text_of(v, key));
    else if (key == "eos")
      t.eos = text_of(v, key);
    else if (key == "separator")
      t.separator = text_of(v, key);
    else if (key == "system")
      t.system = v.is_null() ? std::nullopt : std::optional(text_of(v, key));
    else if (key == "roles")
      each(v, "roles", [&](const std::string& role, const Value& r) { t.roles[role] = read_role(r, "roles." + role); });
    else
      throw wrong(v, concat("\"", key, "\" is no key of a template; known are bos, eos, separator, system and roles"));
  });
  if (t.roles.empty()) throw wrong(value, "the template has no roles");
  if (t.system && !t.roles.contains("system"))
    throw wrong(value, "the template has a text for \"system\" and no role \"system\"");
  return t;
}

}  // namespace drivetrain::instruction
