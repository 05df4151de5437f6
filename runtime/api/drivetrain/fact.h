// A value that becomes known in the course of planning. Reading it too early is an error that names the round of `plan`
// in which it will be known. Thread: any, while no thread assigns.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(fact)

namespace drivetrain {

// The call of `plan` from which on a fact is known (plugin.h lists the rounds).
enum class Round : uint8_t {
  configured,       // from the first one if the configuration gives it; otherwise from the third one, in training only
  axes,             // from the second one: every plugin has claimed its axes
  data,             // from the third one, in training only: the batch is solved and the dataset is open
  built,            // in the last one: the model is built on the meta device and cut into stages
  if_model_has_it,  // from the first one if the model has it; otherwise never
};

// Throws Error(plugin): `name` is not known yet, and from which round on it will be.
[[noreturn]] DRIVETRAIN_API void throw_unknown_fact(const char* name, Round from);

template <class T>
class Fact {
 public:
  constexpr Fact(const char* name, Round from) : name_(name), from_(from) {}
  Fact(const Fact&) = default;
  Fact& operator=(const Fact& other) {  // copies the value, not the name
    value_ = other.value_;
    return *this;
  }
  Fact& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }

  bool known() const { return value_.has_value(); }
  // Error(plugin) if it is not known yet.
  const T& value() const {
    if (!value_) throw_unknown_fact(name_, from_);
    return *value_;
  }
  operator const T&() const { return value(); }
  T value_or(T other) const { return value_.value_or(std::move(other)); }
  void forget() { value_.reset(); }

 private:
  const char* name_;  // a string literal
  Round from_;
  std::optional<T> value_ = {};
};

}  // namespace drivetrain
