// checkpoint_store/sharded: what was written comes back, in any boxes and dtypes; tags appear, are replaced and go.
#include "test_saves.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <unistd.h>

#include <drivetrain/safetensors.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

using Strings = std::vector<std::string>;

TEST_F(ShardedTest, any_box_of_any_cut_comes_back_to_the_bit) {
  const State state = large_state(4);
  std::mt19937 random(5);
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    const auto written = store();
    const std::string tag = concat("step-", ranks);
    save(*written, state, tag, ranks, ranks, static_cast<unsigned>(ranks));
    const auto checkpoint = store()->open(tag);
    EXPECT_TRUE(same(read_all(*checkpoint), state)) << ranks << " ranks";
    EXPECT_EQ(checkpoint->verify(), Strings{});
    for (int i = 0; i < 60; ++i) {
      const auto& [name, tensor] = *std::next(state.begin(), static_cast<long>(random() % state.size()));
      const at::Tensor matrix = as_matrix(tensor);
      const auto pick = [&](int64_t size) {
        return size == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(size));
      };
      StateBox box{pick(matrix.size(0)), pick(matrix.size(1)), 0, 0};
      box.rows = pick(matrix.size(0) - box.row + 1), box.columns = pick(matrix.size(1) - box.column + 1);
      const at::Tensor into = at::full({box.columns, box.rows}, 77, tensor.scalar_type()).t();  // strides of its own
      checkpoint->read(name, box, into);
      EXPECT_TRUE(equal_bits(into, matrix.narrow(0, box.row, box.rows).narrow(1, box.column, box.columns))) << name;
    }
  }
}

// Behind it may be any folder of this user, in which saves would be written and removed.
TEST_F(ShardedTest, a_folder_that_is_a_link_of_another_user_is_refused_and_an_own_one_is_followed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user";
  std::filesystem::create_directories(folder.path("elsewhere/.saving-a"));
  std::filesystem::create_directory_symlink("elsewhere", folder.path("checkpoints"));
  ASSERT_EQ(lchown(folder.path("checkpoints").c_str(), 65534, 65534), 0);
  try {
    store();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("a symbolic link of user 65534"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path("elsewhere/.saving-a")));
  ASSERT_EQ(lchown(folder.path("checkpoints").c_str(), geteuid(), getegid()), 0);
  save(*store(), small_state(1), "a", 7, 2);
  EXPECT_TRUE(std::filesystem::exists(folder.path("elsewhere/a/manifest.json")));
}

TEST_F(ShardedTest, converts_to_the_dtype_that_is_asked_for) {
  const State state = large_state(4);
  save(*store(), state, "a", 1, 3);
  const auto checkpoint = store()->open("a");
  for (const auto& [name, tensor] : state)
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong}) {
      const at::Tensor matrix = as_matrix(tensor), into = at::empty(matrix.sizes(), dtype);
      checkpoint->read(name, {0, 0, matrix.size(0), matrix.size(1)}, into);
      EXPECT_TRUE(equal_bits(into, matrix.to(dtype))) << name << " as " << dtype;
    }
}

TEST_F(ShardedTest, tells_what_it_holds) {
  const Value facts =
      parse_json(R"({"figures": {"loss": 0.1, "step": 7}, "run_id": "7f", "config": {"a": [1, null, "x"]}})", "test");
  save(*store(), small_state(1), "a", 7, 2, 1, facts);
  const auto again = store();
  const StoredTag tag = again->tags().at(0);
  EXPECT_EQ(tag.step, 7);
  EXPECT_GT(tag.saved_at, 1.7e9);
  EXPECT_EQ(tag.figures.to_json(), facts.find("figures")->to_json());
  EXPECT_EQ(tag.run_id, "7f");
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("checkpoints/a")))
    bytes += entry.file_size();
  EXPECT_EQ(tag.bytes, bytes);
  const auto checkpoint = again->open("a");
  EXPECT_EQ(checkpoint->facts().to_json(), facts.to_json());
  Strings names;
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    names.push_back(tensor.name);
    EXPECT_EQ(tensor.shape, small_state(1).at(tensor.name).sizes().vec());
    EXPECT_EQ(tensor.dtype, small_state(1).at(tensor.name).scalar_type());
  }
  EXPECT_EQ(names, (Strings{"block.0.weight", "block.0.weight/exp_avg", "counters", "scale"}));
}

TEST_F(ShardedTest, files_are_safetensors_whose_data_begin_at_a_page) {
  save(*store(), small_state(1), "a", 1, 1);
  const SafetensorsFile read = SafetensorsFile::open(file("a", "rank-00000.safetensors"));
  double sum = 0;
  for (const std::string& name : read.names()) sum += read.tensor(name).to(at::kDouble).sum().item<double>();
  double wanted = 0;
  for (const auto& [name, tensor] : small_state(1)) wanted += tensor.to(at::kDouble).sum().item<double>();
  EXPECT_EQ(sum, wanted);
  EXPECT_EQ((std::filesystem::file_size(read.path()) - read.data_bytes()) % 4096, 0);
}

TEST_F(ShardedTest, newest_first_by_step_then_time_and_removed_ones_are_gone) {
  const auto used = store();
  for (const int64_t step : {20, 5, 100}) save(*used, small_state(1), concat("step-", step), step);
  save(*used, small_state(2), "again-20", 20);
  EXPECT_EQ(names(*used), (Strings{"step-100", "again-20", "step-20", "step-5"}));
  used->remove("step-20");
  EXPECT_EQ(names(*used), (Strings{"step-100", "again-20", "step-5"}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("checkpoints")), {}), 3);
  EXPECT_NE(error_of([&] { used->remove("step-20"); }).find("there is no such checkpoint"), std::string::npos);
  const std::string missing = error_of([&] { used->open("step-20"); });
  EXPECT_NE(missing.find("step-100, again-20, step-5"), std::string::npos) << missing;
}

TEST_F(ShardedTest, an_open_checkpoint_outlives_its_tag) {
  for (const bool can_exchange : {true, false}) {
    calls.can_exchange = can_exchange;
    const auto used = store();
    save(*used, large_state(4), "a", 1);
    const auto first = used->open("a");
    save(*used, small_state(2), "a", 2);
    const auto second = used->open("a");
    EXPECT_TRUE(same(read_all(*first), large_state(4)));
    EXPECT_TRUE(same(read_all(*second), small_state(2)));
    used->remove("a");
    EXPECT_TRUE(same(read_all(*second), small_state(2)));
    EXPECT_EQ(std::filesystem::is_empty(folder.path("checkpoints")), true);
  }
}

TEST_F(ShardedTest, slices_are_freed_as_they_are_written) {
  const auto used = store();
  Snapshot snapshot = cut(large_state(4), "a", 1, 1, 1)[0];
  used->write(snapshot);
  for (const StateSlice& slice : snapshot.slices) EXPECT_FALSE(slice.data.defined());
}

TEST_F(ShardedTest, refuses_slices_and_parts_that_do_not_fit) {
  const auto used = store();
  const auto refusal = [&](const auto& change) {
    Snapshot snapshot = cut(small_state(1), "a", 1, 1, 1)[0];
    change(snapshot);
    return error_of([&] { used->write(snapshot); });
  };
  EXPECT_NE(refusal([](Snapshot& s) { s.slices[0].box.row = 5; }).find("not inside of the tensor"), std::string::npos);
  EXPECT_NE(refusal([](Snapshot& s) { s.slices.push_back(s.slices[0]); }).find("there twice"), std::string::npos);
  EXPECT_NE(refusal([](Snapshot& s) { s.tag = "../a"; }).find("no tag"), std::string::npos);
  std::vector<Value> parts;
  for (Snapshot& snapshot : cut(small_state(1), "a", 1, 2, 1)) parts.push_back(used->write(snapshot));
  for (const std::vector<Value>& wrong : {std::vector<Value>{}, {parts[0]}, {parts[1], parts[0]}})
    EXPECT_NE(error_of([&] { used->commit("a", 1, Value::object(), wrong); }).find("on every rank"), std::string::npos);
  EXPECT_NE(error_of([&] { used->commit("a", 2, Value::object(), parts); }).find("step 2"), std::string::npos);
  EXPECT_EQ(names(*used), Strings{});
}

TEST_F(ShardedTest, options_say_where_when_and_what_then) {
  const auto made = make_plugin<CheckpointStore>(host, "sharded");
  EXPECT_TRUE(made->asynchronous() && made->failure_ends_run());
  const auto other = make_plugin<CheckpointStore>(
      host, "sharded", R"({"folder": "kept/here", "asynchronous": false, "on_error": "continue", "verify": false})");
  EXPECT_FALSE(other->asynchronous() || other->failure_ends_run());
  other->open_place(folder.path("run"), true);
  EXPECT_FALSE(std::filesystem::exists(folder.path("run")));  // creates nothing
  Snapshot snapshot{"a", 1, 0, 1, {}};
  const Value part = other->write(snapshot);
  other->commit("a", 1, Value::object(), {part});
  EXPECT_TRUE(std::filesystem::exists(folder.path("run/kept/here/a/manifest.json")));
  EXPECT_EQ(error_of([&] { make_plugin<CheckpointStore>(host, "sharded")->tags(); }).empty(), false);
}

}  // namespace
}  // namespace drivetrain::test
