// A visitor that keeps what an object shows, and gives it back to another one: a stop and a restart within a test.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <map>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/state.h>

namespace drivetrain::test {

struct Keeper : StateVisitor {
  std::map<std::string, at::Tensor> tensors;  // by name and where the part begins
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> numbers;
  std::vector<std::string> names, loaded;  // in the order of the visits
  bool loading = false;

  bool empty() const { return names.empty(); }
  bool holds_the_same_as(const Keeper& other) const {
    const auto same_bits = [](const auto& a, const auto& b) {
      return a.first == b.first && at::equal(a.second, b.second);
    };
    return integers == other.integers && numbers == other.numbers && tensors.size() == other.tensors.size() &&
           std::equal(tensors.begin(), tensors.end(), other.tensors.begin(), same_bits);
  }

  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override {
    const std::string key = concat(name, "@", layout.begin);
    note(key);
    if (loading)
      t.copy_(tensors.at(key));
    else
      EXPECT_TRUE(tensors.emplace(key, t.clone()).second) << key << " twice";
  }
  void integer(const std::string& name, int64_t& value) override { number_like(name, value, integers); }
  void number(const std::string& name, double& value) override { number_like(name, value, numbers); }

 private:
  void note(const std::string& name) { (loading ? loaded : names).push_back(name); }
  template <class T>
  void number_like(const std::string& name, T& value, std::map<std::string, T>& kept) {
    note(name);
    if (loading)
      value = kept.at(name);
    else
      EXPECT_TRUE(kept.emplace(name, value).second) << name << " twice";
  }
};

}  // namespace drivetrain::test
