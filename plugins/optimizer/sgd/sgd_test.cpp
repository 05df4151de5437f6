// optimizer/sgd: PyTorch's recorded numbers, and its options.
#include "conformance/optimizer/golden.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct Sgd : ::testing::Test {
  Host host;
  // The values of one element that starts at 1 and has gradient 2 in every step.
  std::vector<double> path(const std::string& json) {
    auto optimizer = make_plugin<Optimizer>(host, "sgd", json);
    const Trainable t = trainable(*optimizer, test_param("w", {1, 1}), uneven_numbers(1, 1, at::kDouble));
    t.value.fill_(1), t.grad.fill_(2);
    optimizer->init({t});
    std::vector<double> values;
    for (int64_t step = 0; step < 3; ++step) {
      optimizer->update({t}, update_args(*optimizer, step));
      values.push_back(t.value.item<double>());
    }
    return values;
  }
};

TEST_F(Sgd, matches_the_recorded_momentum) {
  run_golden_optimizer(host, "sgd", "sgd_momentum", {{"m", "momentum_buffer"}});
}

TEST_F(Sgd, matches_the_recorded_nesterov_momentum) {
  run_golden_optimizer(host, "sgd", "sgd_nesterov", {{"m", "momentum_buffer"}}, R"({"nesterov": true})");
}

TEST_F(Sgd, without_momentum_follows_the_gradient_and_keeps_no_state) {
  const std::vector<double> plain = path(R"({"lr": 0.25})");
  EXPECT_EQ(plain, (std::vector<double>{0.5, 0, -0.5}));
  const Param param("w", Layout::whole({2, 2}), InitRule::zeros());
  EXPECT_EQ(make_plugin<Optimizer>(host, "sgd")->state_bytes_per_element(param), 0);
}

TEST_F(Sgd, dampening_spares_the_first_update) {
  // buffers 2, 1 + 1 = 2, 2: momentum 0.5 and dampening 0.5 keep a steady gradient
  EXPECT_EQ(path(R"({"lr": 0.25, "momentum": 0.5, "dampening": 0.5})"), (std::vector<double>{0.5, 0, -0.5}));
}

TEST_F(Sgd, refuses_nesterov_without_plain_momentum) {
  const char* wanted = "optimizer/sgd: nesterov wants momentum above 0 and dampening 0";
  EXPECT_NE(error_of([&] { path(R"({"nesterov": true})"); }).find(wanted), std::string::npos);
  EXPECT_NE(error_of([&] { path(R"({"nesterov": true, "momentum": 0.9, "dampening": 0.1})"); }).find(wanted),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain
