// The option table of a plugin: the only place where its options are written down. Parsing, defaults, ranges, error
// messages with position and suggestion, `drivetrain inspect`, JSON Schema and the tables in READMEs all come from it.
//
//   struct AdamWOptions { double lr = 1e-3; std::vector<double> betas = {0.9, 0.999}; Decay decay; };
//   static OptionTable options() {
//     return table<AdamWOptions>()
//         .field("lr", &AdamWOptions::lr, "learning rate where no scheduler sets one").range(0, 1e3)
//         .field("betas", &AdamWOptions::betas, "decay rates of both moments").length(2).range(0, 1)
//         .field("mode", &AdamWOptions::mode, "what to do").one_of({"a", "b"})
//         .group("offload", &AdamWOptions::offload, offload_table())
//         .renamed("weightdecay", "weight_decay")
//         .refused("amsgrad", "not in this version");
//   }
//
// Field types: bool, integers, double, std::string, Value (anything), PluginChoice, std::optional and std::vector of
// these; of a PluginChoice only itself and std::optional.
// Modifiers (range, one_of, ...) apply to the field before them. T::options() is called once per process.
// A built table does not change; const calls from any thread.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

DRIVETRAIN_CONTRACT(options)

namespace drivetrain {

// The problems of one file, collected so that a user sees all of them at once.
struct Problem {
  Position where;
  std::string message;
  ErrorCode code = ErrorCode::config;
};
// What a file leaves to a rule: "auto", or a key that it does not have.
struct AutoValue {
  Position where;  // of "auto"; no file where the key is absent
  std::string key, value, rule;
};
class DRIVETRAIN_API Problems {
 public:
  void add(const Position& where, const std::string& message, ErrorCode code = ErrorCode::config);
  // A warning, which does not stop the run: an old name, a key without effect here.
  void note(const Position& where, const std::string& message);
  // Shown once at the start, as a table, and kept in resolved.json.
  void resolve(const Position& where, const std::string& key, const std::string& value, const std::string& rule);
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }
  const std::vector<Problem>& notes() const { return notes_; }
  const std::vector<AutoValue>& resolved() const { return resolved_; }
  std::string text() const;   // one "file:line:col  message" each, in file order
  void throw_if_any() const;  // Error with text(); the code of the first problem
 private:
  std::vector<Problem> list_, notes_;
  std::vector<AutoValue> resolved_;
};

// What a rule of TableBuilder::automatic may ask. Known when a configuration is read, before plugins are planned.
class DRIVETRAIN_API AutoFacts {
 public:
  virtual ~AutoFacts();
  virtual int64_t hidden_size() const = 0;  // the model's, in elements
  virtual double lr() const = 0;            // learning rate of the optimizer's first group
  virtual int64_t train_steps() const = 0;
};

// Conversion between a C++ type and a Value. `from` throws Error(config) if the value does not fit.
template <class T, class = void>
struct OptionType;
template <>
struct OptionType<bool> {
  static std::string name() { return "boolean"; }
  static bool from(const Value& v) { return v.as_bool(); }
  static Value to(bool x) { return x; }
};
template <class T>
struct OptionType<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static std::string name() { return "integer"; }
  static T from(const Value& v) {
    const int64_t x = v.as_int();
    if (static_cast<int64_t>(static_cast<T>(x)) != x) throw fail(ErrorCode::config, x, " is out of range");
    return static_cast<T>(x);
  }
  static Value to(T x) { return static_cast<int64_t>(x); }
};
template <>
struct OptionType<double> {
  static std::string name() { return "number"; }
  static double from(const Value& v) { return v.as_double(); }
  static Value to(double x) { return x; }
};
template <>
struct OptionType<std::string> {
  static std::string name() { return "string"; }
  static std::string from(const Value& v) { return v.as_string(); }
  static Value to(const std::string& x) { return x; }
};
template <>
struct OptionType<Value> {
  static std::string name() { return "any"; }
  static Value from(const Value& v) { return v; }
  static Value to(const Value& x) { return x; }
};
// Another plugin as an option: "NAME" or {"type": "NAME", "params": {...}}. The runtime checks name and options when it
// reads the configuration, and writes them out in full. Services::plugins creates the plugin.
struct PluginChoice {
  std::string type;  // the plugin's name; "": none
  Value params = Value::object();
};
template <>
struct DRIVETRAIN_API OptionType<PluginChoice> {
  static std::string name() { return "plugin"; }
  static PluginChoice from(const Value& v);
  static Value to(const PluginChoice& x);  // null where none is chosen
};
template <class T>
struct OptionType<std::optional<T>> {
  static std::string name() { return OptionType<T>::name() + " or null"; }
  static std::optional<T> from(const Value& v) {
    return v.is_null() ? std::nullopt : std::optional<T>(OptionType<T>::from(v));
  }
  static Value to(const std::optional<T>& x) { return x ? OptionType<T>::to(*x) : Value(); }
};
template <class T>
struct OptionType<std::vector<T>> {
  static std::string name() { return "list of " + OptionType<T>::name(); }
  static std::vector<T> from(const Value& v) {
    std::vector<T> list;
    for (const Value& item : v.items()) list.push_back(OptionType<T>::from(item));
    return list;
  }
  static Value to(const std::vector<T>& x) {
    Value::Array list;
    for (const T& item : x) list.push_back(OptionType<T>::to(item));
    return Value(std::move(list));
  }
};

class OptionTable;

struct OptionField {
  std::string name;
  std::string help;  // one plain sentence
  std::string type;  // "integer", "list of number", "object" for groups, ...
  std::vector<std::string> aliases;
  bool required = false;
  std::optional<double> minimum, maximum;  // inclusive; of every element of a list
  std::vector<std::string> choices;        // matched without regard to case, stored as written here
  std::optional<size_t> length;
  bool is_path = false;                // relative to the config file; made absolute when parsed
  std::string plugin_kind;             // of a PluginChoice: the plugin's kind
  std::vector<std::string> inherited;  // of a PluginChoice: see TableBuilder::inherits
  std::string auto_rule;               // what "auto" means, in words; "": it means nothing
  std::function<Value(const AutoFacts&)> auto_value;
  std::function<void(void*, const Value&)> set;  // on the options struct; throws Error(config)
  std::function<Value(const void*)> get;
  std::shared_ptr<const OptionTable> group;  // nested table; then set and get are empty
  std::function<void*(void*)> member;        // the nested struct inside the outer one
};

// A key that is not an option, with the message for users who write it.
struct OptionRedirect {
  std::string name;
  std::string message;     // "renamed to \"x\"", "not in this version: ...", "belongs to recompute/full as \"every\""
  std::string renamed_to;  // if set: the value is used under this name, with a warning; else the key is an error
};

class DRIVETRAIN_API OptionTable {
 public:
  // A default-constructed options struct.
  std::shared_ptr<void> defaults() const { return make_(); }

  // Reads `section` (an object, or null for all defaults) into a new options struct. Adds every problem (unknown key,
  // wrong type, out of range, missing required key) to `problems`. `owner` ("optimizer/adamw") and `path`
  // ("optimizer.params") appear in messages. Skips keys beginning with `_` or `$`. If there is no problem, calls the
  // function of TableBuilder::finish at the end.
  std::shared_ptr<void> parse(const Value& section, const std::string& owner, const std::string& path,
                              Problems& problems) const;

  Value to_value(const void* options) const;  // every field, in table order
  Value schema() const;                       // JSON Schema (2020-12) of the section

  const std::vector<OptionField>& fields() const { return fields_; }
  const std::vector<OptionRedirect>& redirects() const { return redirects_; }
  const OptionField* find(const std::string& name) const;  // by name or alias

 private:
  template <class>
  friend class TableBuilder;
  std::function<std::shared_ptr<void>()> make_;
  std::vector<OptionField> fields_;
  std::vector<OptionRedirect> redirects_;
  std::function<void(void*)> finish_;
};

template <class Options>
class TableBuilder {
 public:
  TableBuilder() {
    table_.make_ = [] { return std::static_pointer_cast<void>(std::make_shared<Options>()); };
  }

  template <class T>
  TableBuilder& field(const std::string& name, T Options::*member, const std::string& help) {
    OptionField f;
    f.name = name, f.help = help, f.type = OptionType<T>::name();
    f.set = [member](void* o, const Value& v) { static_cast<Options*>(o)->*member = OptionType<T>::from(v); };
    f.get = [member](const void* o) { return OptionType<T>::to(static_cast<const Options*>(o)->*member); };
    table_.fields_.push_back(std::move(f));
    return *this;
  }
  template <class Sub>
  TableBuilder& group(const std::string& name, Sub Options::*member, OptionTable inner, const std::string& help = "") {
    OptionField f;
    f.name = name, f.help = help, f.type = "object";
    f.group = std::make_shared<const OptionTable>(std::move(inner));
    f.member = [member](void* o) -> void* { return &(static_cast<Options*>(o)->*member); };
    table_.fields_.push_back(std::move(f));
    return *this;
  }

  TableBuilder& range(double minimum, double maximum) {
    return last().minimum = minimum, last().maximum = maximum, *this;
  }
  TableBuilder& at_least(double minimum) { return last().minimum = minimum, *this; }
  TableBuilder& one_of(std::initializer_list<const char*> c) {
    return last().choices.assign(c.begin(), c.end()), *this;
  }
  TableBuilder& alias(const std::string& other) { return last().aliases.push_back(other), *this; }
  TableBuilder& length(size_t n) { return last().length = n, *this; }
  TableBuilder& required() { return last().required = true, *this; }
  TableBuilder& path() { return last().is_path = true, *this; }
  // For a PluginChoice, always: which kind of plugin.
  TableBuilder& plugin(const std::string& kind) { return last().plugin_kind = kind, *this; }
  // For a PluginChoice: the plugin's option of this name has the value of this table's, unless it is given.
  TableBuilder& inherits(const std::string& option) { return last().inherited.push_back(option), *this; }

  // The option may be "auto", for which the runtime puts in `value` before it parses the section. `rule`, in words, is
  // shown beside the value: "hidden_size * hidden_size".
  template <class Rule>
  requires std::is_invocable_r_v<Value, Rule, const AutoFacts&> TableBuilder& automatic(const std::string& rule,
                                                                                        Rule value) {
    return last().auto_rule = rule, last().auto_value = value, *this;
  }
  TableBuilder& automatic(const std::string& rule, const Value& value) {
    return automatic(rule, [value](const AutoFacts&) { return value; });
  }

  TableBuilder& renamed(const std::string& old_name, const std::string& name) {
    return table_.redirects_.push_back({old_name, "renamed to \"" + name + "\"", name}), *this;
  }
  TableBuilder& refused(const std::string& name, const std::string& why) {
    return table_.redirects_.push_back({name, why, ""}), *this;
  }
  TableBuilder& belongs_to(const std::string& name, const std::string& plugin, const std::string& option) {
    return table_.redirects_.push_back({name, "belongs to " + plugin + " as \"" + option + "\"", ""}), *this;
  }

  // `use` is called with options that were parsed without a problem. It sets defaults that depend on other options (so
  // that resolved.json shows them), and throws Error(config) if options contradict each other. It is not called for a
  // table that is a group of another one.
  TableBuilder& finish(const std::function<void(Options&)>& use) {
    return table_.finish_ = [use](void* o) { use(*static_cast<Options*>(o)); }, *this;
  }

  operator OptionTable() const { return table_; }

 private:
  OptionField& last() { return table_.fields_.back(); }
  OptionTable table_;
};

template <class Options>
TableBuilder<Options> table() {
  return {};
}

struct NoOptions {};

}  // namespace drivetrain
