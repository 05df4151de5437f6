// Option tables as JSON Schema (2020-12), for editors. Aliases and old names are listed as deprecated properties.
#include <string_view>

#include <drivetrain/options.h>

namespace drivetrain {
namespace {

bool cut_front(std::string& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.erase(0, start.size());
  return true;
}

bool cut_back(std::string& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

void add_limits(const OptionField& field, Value& schema) {
  const auto limit = [](double x) { return x == static_cast<int64_t>(x) ? Value(static_cast<int64_t>(x)) : Value(x); };
  if (field.minimum) schema.set("minimum", limit(*field.minimum));
  if (field.maximum) schema.set("maximum", limit(*field.maximum));
  if (field.choices.empty()) return;
  Value choices = Value::array();
  for (const std::string& choice : field.choices) choices.items().push_back(choice);
  schema.set("enum", choices);
}

// `type` as OptionType names it: "list of integer", "number or null", ...
Value type_schema(const OptionField& field, std::string type) {
  Value schema = Value::object();
  if (cut_back(type, " or null")) {
    schema.set("anyOf", Value::Array{type_schema(field, type), Value::Object{{"type", "null"}}});
  } else if (cut_front(type, "list of ")) {
    schema.set("type", "array");
    schema.set("items", type_schema(field, type));
    if (field.length) schema.set("minItems", static_cast<int64_t>(*field.length));
    if (field.length) schema.set("maxItems", static_cast<int64_t>(*field.length));
  } else if (type == "plugin") {
    schema.set("type", Value::Array{"string", "object"});
  } else {
    if (type != "any") schema.set("type", type);
    add_limits(field, schema);
  }
  return schema;
}

Value or_auto(Value schema) {
  return Value::Object{{"anyOf", Value::Array{std::move(schema), Value::Object{{"const", "auto"}}}}};
}

Value table_schema(const OptionTable& table, const void* defaults);

Value field_schema(const OptionField& field, const void* defaults) {
  // `member` only adds an offset; it takes void* because parsing writes through it.
  Value schema = field.group ? table_schema(*field.group, field.member(const_cast<void*>(defaults)))
                             : type_schema(field, field.type);
  if (!field.auto_rule.empty()) schema = or_auto(std::move(schema));
  if (!field.help.empty()) schema.set("description", field.help);
  if (!field.group && !field.required) schema.set("default", field.get(defaults));
  return schema;
}

Value required_names(const OptionField& field) {
  Value::Array any;
  std::vector<std::string> names = field.aliases;
  names.insert(names.begin(), field.name);
  for (const std::string& name : names) any.push_back(Value::Object{{"required", Value::Array{name}}});
  return Value::Object{{"anyOf", std::move(any)}};
}

Value table_schema(const OptionTable& table, const void* defaults) {
  Value properties = Value::object(), required = Value::array();
  for (const OptionField& field : table.fields()) {
    Value own = properties.set(field.name, field_schema(field, defaults));
    own.set("deprecated", true);
    own.set("description", "another name of " + field.name);
    for (const std::string& alias : field.aliases) properties.set(alias, own);
    for (const OptionRedirect& r : table.redirects()) {
      if (r.renamed_to == field.name) properties.set(r.name, own);
    }
    if (field.required) required.items().push_back(required_names(field));
  }
  Value schema = Value::Object{{"type", "object"},
                               {"properties", std::move(properties)},
                               {"patternProperties", Value::Object{{"^[_$]", Value::object()}}},
                               {"additionalProperties", false}};
  if (!required.items().empty()) schema.set("allOf", required);
  return schema;
}

}  // namespace

Value OptionTable::schema() const {
  const std::shared_ptr<void> standard = defaults();
  Value schema = Value::object();
  schema.set("$schema", "https://json-schema.org/draft/2020-12/schema");
  const Value table = table_schema(*this, standard.get());  // named: a loop over a temporary's members would dangle
  for (const Value::Member& m : table.members()) schema.set(m.key, m.value);
  return schema;
}

}  // namespace drivetrain
