#include <drivetrain/testkit/optimizer/suite.h>

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <drivetrain/mesh.h>

#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/optimizer/ranks.h>

namespace drivetrain::test {
namespace {

void expect_equal_values(const Trainables& a, const Trainables& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(equal_tensors(a[i].value, b[i].value)) << a[i].param->name;
    EXPECT_TRUE(equal_tensors(a[i].working, b[i].working)) << a[i].param->name;
  }
}

// Steps [first, last) in one call each.
void run_steps(Optimizer& optimizer, const Trainables& all, int64_t first, int64_t last, double grad_scale = 0.5) {
  for (int64_t step = first; step < last; ++step) {
    set_grads(all, step);
    optimizer.update(all, update_args(optimizer, step, grad_scale));
  }
}

void check_chunks_equal_one_call(const OptimizerMaker& make) {
  auto whole = make(), chunked = make();
  const Trainables a = test_trainables(*whole), b = test_trainables(*chunked);
  whole->init(a), chunked->init({b[2], b[0], b[1]});
  run_steps(*whole, a, 0, 3);
  for (int64_t step = 0; step < 3; ++step) {
    set_grads(b, step);
    for (const size_t i : {2, 0, 1}) chunked->update({b[i]}, update_args(*chunked, step, 0.5));
  }
  expect_equal_values(a, b);
}

// Every tensor cut at odd places, with an empty part: the parts must have the bits of the whole.
void check_sharded_equals_whole(const OptimizerMaker& make) {
  auto whole = make(), sharded = make();
  const Trainables a = test_trainables(*whole), source = test_trainables(*sharded);
  Trainables parts;
  for (const Trainable& t : source) {
    const int64_t n = t.value.numel(), cuts[] = {0, 1, n / 3 + 1, n, n};
    for (int i = 0; i < 4; ++i) {
      Trainable part = t;
      part.layout.begin = cuts[i], part.layout.end = cuts[i + 1];
      part.value = part.working = t.value.narrow(0, cuts[i], cuts[i + 1] - cuts[i]);
      part.grad = t.grad.narrow(0, cuts[i], cuts[i + 1] - cuts[i]);
      parts.push_back(part);
    }
  }
  whole->init(a), sharded->init(parts);
  for (int64_t step = 0; step < 3; ++step) {
    set_grads(a, step), set_grads(source, step);
    whole->update(a, update_args(*whole, step, 0.5));
    sharded->update(parts, update_args(*sharded, step, 0.5));
  }
  expect_equal_values(a, source);
}

void check_skip_leaves_everything(const OptimizerMaker& make) {
  auto optimizer = make(), reference = make();
  const Trainables a = test_trainables(*optimizer), b = test_trainables(*reference);
  optimizer->init(a), reference->init(b);
  set_grads(a, 9);
  optimizer->update(a, update_args(*optimizer, 0, 1, true));
  expect_equal_values(a, b);
  run_steps(*optimizer, a, 0, 2), run_steps(*reference, b, 0, 2);
  expect_equal_values(a, b);  // the moments were left too
}

void check_gradients_are_not_touched(const OptimizerMaker& make) {
  auto optimizer = make();
  const Trainables all = test_trainables(*optimizer);
  optimizer->init(all);
  set_grads(all, 0);
  Tensors before;
  for (const Trainable& t : all) before.push_back(t.grad.clone());
  optimizer->update(all, update_args(*optimizer, 0, 0.5));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(equal_tensors(before[i], all[i].grad));
}

// A power of two, which rounds nothing.
void check_gradients_are_scaled(const OptimizerMaker& make) {
  constexpr double kScale = 0x1p-10;
  auto scales = make(), scaled = make();
  const Trainables a = test_trainables(*scales), b = test_trainables(*scaled);
  scales->init(a), scaled->init(b);
  for (int64_t step = 0; step < 2; ++step) {
    set_grads(a, step), set_grads(b, step);
    for (const Trainable& t : b) t.grad.mul_(kScale);
    scales->update(a, update_args(*scales, step, kScale)), scaled->update(b, update_args(*scaled, step, 1));
  }
  expect_equal_values(a, b);
}

// Rates come with each call, as schedules set them: with those of 0 nothing moves. Values are changed where they are.
void check_rates_are_those_of_the_call(const OptimizerMaker& make) {
  auto optimizer = make();
  const Trainables all = test_trainables(*optimizer), before = test_trainables(*optimizer);
  optimizer->init(all);
  std::vector<const void*> places;
  for (const Trainable& t : all) places.push_back(t.value.const_data_ptr());
  set_grads(all, 0);
  UpdateArgs args = update_args(*optimizer, 0);
  args.hyper.select(1, 0).zero_();
  optimizer->update(all, args);
  expect_equal_values(all, before);
  run_steps(*optimizer, all, 1, 2);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_FALSE(at::equal(all[i].value, before[i].value)) << all[i].param->name << " never moves";
    EXPECT_EQ(all[i].value.const_data_ptr(), places[i]) << all[i].param->name << " has other memory";
  }
}

void check_state_survives(const OptimizerMaker& make) {
  auto first = make(), second = make();
  const Trainables a = test_trainables(*first), b = test_trainables(*second);
  first->init(a);
  run_steps(*first, a, 0, 2);
  Keeper keeper;
  first->state(keeper);
  double bytes = 0, promised = 0;
  for (const auto& [name, tensor] : keeper.tensors) bytes += static_cast<double>(tensor.nbytes());
  for (const Trainable& t : a)
    promised += first->state_bytes_per_element(*t.param) * static_cast<double>(t.value.numel());
  EXPECT_EQ(bytes, promised) << "Optimizer::state_bytes_per_element";

  for (size_t i = 0; i < a.size(); ++i) b[i].value.copy_(a[i].value);
  second->init(b);
  keeper.loading = true;
  second->state(keeper);
  run_steps(*first, a, 2, 4), run_steps(*second, b, 2, 4);
  expect_equal_values(a, b);
}

// value keeps the float32 numbers, working their rounding, and the values are those of a run without a working copy.
void check_working_copy(const OptimizerMaker& make) {
  auto plain = make(), mixed = make();
  const Trainables a = test_trainables(*plain), b = test_trainables(*mixed, true);
  plain->init(a), mixed->init(b);
  run_steps(*plain, a, 0, 2), run_steps(*mixed, b, 0, 2);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(equal_tensors(a[i].value, b[i].value));
    EXPECT_TRUE(equal_tensors(b[i].working, b[i].value.to(at::kBFloat16)));
  }
}

// A gradient in 16 bits is read as the number it is, and multiplied in a wider type.
void check_gradients_of_16_bits(const OptimizerMaker& make) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    auto narrow = make(), wide = make();
    Trainables a = test_trainables(*narrow);
    const Trainables b = test_trainables(*wide);
    for (Trainable& t : a) t.grad = t.grad.to(type);
    narrow->init(a), wide->init(b);
    for (int64_t step = 0; step < 2; ++step) {
      set_grads(b, step);
      for (size_t i = 0; i < b.size(); ++i) a[i].grad.copy_(b[i].grad), b[i].grad.copy_(a[i].grad);
      narrow->update(a, update_args(*narrow, step, 0.3)), wide->update(b, update_args(*wide, step, 0.3));
    }
    expect_equal_values(a, b);
  }
}

void check_groups(const OptimizerMaker& make) {
  auto optimizer = make();
  const int groups = static_cast<int>(optimizer->groups().size());
  for (const Trainable& t : test_trainables(*optimizer)) {
    EXPECT_GE(t.group, 0);
    EXPECT_LT(t.group, groups);
  }
}

void check_foreign_trainables_are_refused(const OptimizerMaker& make) {
  auto optimizer = make();
  const Trainables all = test_trainables(*optimizer);
  optimizer->init({all[0]});
  EXPECT_NE(error_of([&] { optimizer->update({all[1]}, update_args(*optimizer, 0)); }).find("a.bias was not in init"),
            std::string::npos);
}

using OptimizerCheck = void (*)(const OptimizerMaker&);
constexpr std::pair<const char*, OptimizerCheck> kOptimizerChecks[] = {
    {"every_parameter_has_a_group", check_groups},
    {"chunks_in_any_order_give_the_bits_of_one_call", check_chunks_equal_one_call},
    {"parts_of_tensors_give_the_bits_of_whole_ones", check_sharded_equals_whole},
    {"a_skipped_update_leaves_values_and_moments", check_skip_leaves_everything},
    {"gradients_are_not_touched", check_gradients_are_not_touched},
    {"gradients_are_multiplied_by_their_scale", check_gradients_are_scaled},
    {"rates_are_those_of_the_call", check_rates_are_those_of_the_call},
    {"state_survives_a_stop", check_state_survives},
    {"working_copies_are_the_rounded_values", check_working_copy},
    {"gradients_of_16_bits_are_read_as_the_numbers_they_are", check_gradients_of_16_bits},
    {"trainables_that_were_not_in_init_are_refused", check_foreign_trainables_are_refused},
};

}  // namespace

Suite optimizer_suite() {
  Suite suite;
  for (const auto& [name, check] : kOptimizerChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       Host host;
                       const Mesh alone({}, 0, 1, nullptr);
                       host.services.mesh = &alone;
                       check([&] {
                         return installed_plugins().make<Optimizer>(Optimizer::kKind, subject.name, subject.options,
                                                                    host.services);
                       });
                     }});
  suite.push_back({"parts_of_ranks_give_the_bits_of_one_process", check_optimizer_on_ranks});
  return suite;
}

void run_optimizer_suite(const OptimizerMaker& make) {
  for (const auto& [name, check] : kOptimizerChecks) {
    SCOPED_TRACE(name);
    check(make);
  }
}

}  // namespace drivetrain::test
