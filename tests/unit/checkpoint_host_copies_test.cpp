// Copies of a rank's state: what is copied at once, what may wait for the writing thread, and who waits for whom.
#include "checkpoint/host_copies.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <atomic>
#include <thread>

namespace drivetrain::test {
namespace {

using Changes = StateOwner::Changes;

HeldPart part_of(const std::string& name, const at::Tensor& view, Changes changes = Changes::at_update) {
  return {name, {view.size(0), view.size(1)}, {0, 0, view.size(0), view.size(1)}, view, changes};
}

TEST(HostCopies, what_an_update_alone_changes_is_copied_later_and_the_rest_at_once) {
  const at::Tensor whole = at::arange(60, at::TensorOptions(at::kFloat)).view({5, 12});
  const at::Tensor rows = whole.narrow(0, 1, 3), columns = whole.narrow(1, 4, 5), across = whole.t().narrow(0, 2, 4);
  at::Tensor counts = at::arange(6, at::TensorOptions(at::kLong)).view({2, 3});
  const at::Tensor before = counts.clone();
  const std::vector<HeldPart> parts = {part_of("model/rows", rows), part_of("model/not_ours", rows),
                                       part_of("model/columns", columns), part_of("optimizer/x/across", across),
                                       part_of("dataset/x/counts", counts, Changes::any_time)};
  HostCopies copies;
  const auto slices = copies.begin(parts, {true, false, true, true, true}, /*may_wait=*/true);
  counts.fill_(77);  // as the next step may do
  copies.copy_rest();
  copies.wait();
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[1].name, "model/columns");
  EXPECT_TRUE(at::equal(slices[0].data, rows));
  EXPECT_TRUE(at::equal(slices[1].data, columns));
  EXPECT_TRUE(at::equal(slices[2].data, across));
  EXPECT_TRUE(at::equal(slices[3].data, before)) << "what may change at any time does not wait";
  for (const StateSlice& slice : slices) EXPECT_TRUE(slice.data.is_contiguous()) << slice.name;

  const auto again = copies.begin(parts, {true, false, true, true, true}, /*may_wait=*/false);
  EXPECT_TRUE(at::equal(again[3].data, counts));
  for (size_t i = 0; i < slices.size(); ++i)
    EXPECT_EQ(again[i].data.data_ptr(), slices[i].data.data_ptr()) << "the memory is used again";
  copies.wait();  // for nothing
}

TEST(HostCopies, an_update_waits_for_the_copy) {
  const at::Tensor weight = at::arange(8, at::TensorOptions(at::kFloat)).view({2, 4});
  HostCopies copies;
  const auto slices = copies.begin({part_of("model/weight", weight)}, {true}, /*may_wait=*/true);
  std::atomic<bool> began = false;
  std::thread update([&] {
    copies.wait();
    EXPECT_TRUE(began);
    at::Tensor(weight).fill_(-1);
  });
  std::this_thread::yield();
  began = true;
  copies.copy_rest();
  update.join();
  EXPECT_TRUE(at::equal(slices[0].data, at::arange(8, at::TensorOptions(at::kFloat)).view({2, 4})));
}

}  // namespace
}  // namespace drivetrain::test
