#include <drivetrain/testkit/checkpoint_store/suite.h>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include <drivetrain/testkit/checkpoint_store/states.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

std::shared_ptr<CheckpointStore> open_store(const StoreMaker& make, const TempFolder& folder, bool owner = true) {
  std::shared_ptr<CheckpointStore> store = make();
  store->open_place(folder.path(), owner);
  return store;
}

Strings files_in(const TempFolder& folder) {
  Strings files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  return files;
}

std::optional<ErrorCode> code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.code();
  }
  return std::nullopt;
}

// Any number of ranks writes, any box is read, into any strides and dtype.
void check_values(const StoreMaker& make) {
  const State state = large_state(1);
  std::mt19937 random(5);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)); };
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    const TempFolder folder;
    save(*open_store(make, folder), state, "a", 1, ranks, static_cast<unsigned>(ranks));
    const auto checkpoint = open_store(make, folder, false)->open("a");
    EXPECT_TRUE(same(read_all(*checkpoint), state)) << "values written by " << ranks << " ranks";
    for (const auto& [name, tensor] : state)
      for (const auto dtype : {tensor.scalar_type(), at::kDouble, at::kFloat, at::kLong}) {
        const at::Tensor matrix = as_matrix(tensor);
        StateBox box{pick(matrix.size(0)), pick(matrix.size(1)), 0, 0};
        box.rows = pick(matrix.size(0) - box.row), box.columns = pick(matrix.size(1) - box.column);
        const at::Tensor into = at::full({box.columns, box.rows}, 77, dtype).t();
        checkpoint->read(name, box, into);
        const at::Tensor wanted = matrix.narrow(0, box.row, box.rows).narrow(1, box.column, box.columns).to(dtype);
        EXPECT_TRUE(equal_bits(into, wanted)) << "a box of " << name << " as " << dtype;
      }
  }
}

void check_descriptions(const StoreMaker& make) {
  const TempFolder folder;
  const Value facts = parse_json(R"({"figures": {"loss": 0.1}, "config": {"a": [1, null, "x"]}})", "test");
  const auto store = open_store(make, folder);
  save(*store, large_state(1), "a", 7, 2, 1, facts);
  const auto checkpoint = open_store(make, folder)->open("a");
  EXPECT_EQ(checkpoint->facts().to_json(), facts.to_json()) << "facts";
  const State state = large_state(1);
  const auto tensors = checkpoint->tensors();
  ASSERT_EQ(tensors.size(), state.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = *std::next(state.begin(), static_cast<long>(i));
    EXPECT_EQ(tensors[i].name, name) << "tensors are sorted by name";
    EXPECT_EQ(tensors[i].shape, tensor.sizes().vec()) << name;
    EXPECT_EQ(tensors[i].dtype, tensor.scalar_type()) << name;
  }
  EXPECT_EQ(checkpoint->verify(), Strings{}) << "a whole checkpoint has no problems";
  ASSERT_EQ(store->tags().size(), 1u);
  const StoredTag tag = store->tags()[0];
  EXPECT_EQ(tag.step, 7);
  EXPECT_GT(tag.saved_at, 1.7e9) << "seconds since 1970";
  EXPECT_GT(tag.bytes, 40'000u);
  EXPECT_EQ(tag.figures.to_json(), facts.find("figures")->to_json()) << "figures";
}

void check_commit(const StoreMaker& make) {
  const TempFolder folder;
  const auto store = open_store(make, folder);
  EXPECT_EQ(files_in(folder), Strings{}) << "open_place creates nothing";
  save(*store, small_state(1), "a", 1);
  std::vector<Value> parts;
  for (Snapshot& snapshot : cut(small_state(2), "b", 2, 3, 1)) {
    parts.push_back(store->write(snapshot));
    EXPECT_EQ(names(*store), Strings{"a"}) << "a tag is there before commit";
    EXPECT_EQ(code_of([&] { store->open("b"); }), ErrorCode::checkpoint) << "a tag opens before commit";
    for (const StateSlice& slice : snapshot.slices)
      EXPECT_FALSE(slice.data.defined()) << "write frees the data of its slices";
    const std::string json = parts.back().to_json();
    EXPECT_LE(json.size(), 1'000'000u);
    parts.back() = parse_json(json, "part");  // as it comes from another rank
  }
  store->commit("b", 2, Value::object(), parts);
  EXPECT_EQ(names(*store), (Strings{"b", "a"}));
  EXPECT_TRUE(same(read_all(*store->open("b")), small_state(2)));
}

void check_discard(const StoreMaker& make) {
  const TempFolder folder;
  const auto store = open_store(make, folder);
  save(*store, small_state(1), "a", 1);
  const Strings before = files_in(folder);
  for (Snapshot& snapshot : cut(small_state(2), "b", 2, 3, 1)) store->write(snapshot);
  store->discard("b");
  EXPECT_EQ(files_in(folder), before) << "discard leaves files";
  for (Snapshot& snapshot : cut(small_state(2), "a", 2, 2, 1)) store->write(snapshot);
  store->discard("a");  // what was to replace it goes, the tag stays
  store->discard("never");
  EXPECT_EQ(files_in(folder), before);
  EXPECT_TRUE(same(read_all(*store->open("a")), small_state(1))) << "discard took a complete tag";
  save(*store, small_state(3), "b", 2);
  EXPECT_TRUE(same(read_all(*store->open("b")), small_state(3))) << "a save after a discarded one";
}

void check_replace_and_remove(const StoreMaker& make) {
  const TempFolder folder;
  auto store = open_store(make, folder);
  save(*store, large_state(1), "a", 1, 4);
  const auto first = store->open("a");
  save(*store, large_state(2), "a", 2, 2);
  EXPECT_EQ(names(*store), Strings{"a"});
  EXPECT_EQ(store->tags().at(0).step, 2) << "the step of the new one";
  const auto second = store->open("a");
  EXPECT_TRUE(same(read_all(*first), large_state(1))) << "an open checkpoint stays readable when it is replaced";
  EXPECT_TRUE(same(read_all(*second), large_state(2)));
  EXPECT_EQ(second->verify(), Strings{});
  store->remove("a");
  EXPECT_EQ(names(*store), Strings{}) << "a removed tag is listed";
  EXPECT_EQ(files_in(folder), Strings{}) << "remove leaves files";
  EXPECT_TRUE(same(read_all(*second), large_state(2))) << "an open checkpoint stays readable when it is removed";
  EXPECT_EQ(code_of([&] { store->open("a"); }), ErrorCode::checkpoint);
  save(*store, large_state(3), "b", 3, 2);
  const auto last = store->open("b");
  store = nullptr;
  EXPECT_TRUE(same(read_all(*last), large_state(3))) << "an open checkpoint outlives its store";
}

void check_order(const StoreMaker& make) {
  const TempFolder folder;
  const auto store = open_store(make, folder);
  for (const int64_t step : {5, 100, 20}) save(*store, small_state(1), concat("step-", step), step);
  const Strings wanted{"step-100", "step-20", "step-5"};
  EXPECT_EQ(names(*store), wanted) << "newest first, by step";
  EXPECT_EQ(names(*open_store(make, folder, false)), wanted) << "as another rank sees it";
}

void check_killed_saves(const StoreMaker& make) {
  const TempFolder folder;
  save(*open_store(make, folder), small_state(1), "a", 1);
  const Strings before = files_in(folder);
  for (Snapshot& snapshot : cut(small_state(2), "b", 2, 3, 1)) open_store(make, folder, false)->write(snapshot);
  EXPECT_EQ(names(*open_store(make, folder, false)), Strings{"a"}) << "a save that was never committed";
  const auto store = open_store(make, folder, true);
  EXPECT_EQ(files_in(folder), before) << "the owner removes what a killed save has left";
  EXPECT_TRUE(same(read_all(*store->open("a")), small_state(1)));
}

// What stands for a user in the way of a checkpoint: each tag that a damaged file hides, what a killed save has left.
void check_problems(const StoreMaker& make) {
  const TempFolder folder;
  save(*open_store(make, folder), small_state(1), "a", 1);
  const Strings whole = files_in(folder);
  const auto about = [&](const std::string& tag, bool left_over) {
    const auto store = open_store(make, folder, false);
    const auto problems = store->problems();
    return std::any_of(problems.begin(), problems.end(), [&](const StoreProblem& problem) {
      return problem.tag == tag && problem.left_over == left_over && !problem.text.empty();
    });
  };
  EXPECT_TRUE(open_store(make, folder, false)->problems().empty()) << "a problem of a whole place";
  for (const std::string& path : whole) {
    std::ifstream file(path, std::ios::binary);
    const std::string right{std::istreambuf_iterator<char>(file), {}};
    fs::resize_file(path, right.size() / 2);
    if (names(*open_store(make, folder, false)).empty()) {
      EXPECT_TRUE(about("a", false)) << path << ": no problem tells why the tag is not listed";
    }
    std::ofstream(path, std::ios::binary) << right;
  }
  for (Snapshot& snapshot : cut(small_state(2), "b", 2, 2, 1)) open_store(make, folder, false)->write(snapshot);
  const Strings left = files_in(folder);
  if (left != whole) {
    EXPECT_TRUE(about("b", true)) << "no problem tells what a killed save has left";
  }
  EXPECT_EQ(files_in(folder), left) << "problems changed something";
}

void check_refusals(const StoreMaker& make) {
  const TempFolder folder;
  const auto store = open_store(make, folder);
  EXPECT_EQ(code_of([&] { store->open("a"); }), ErrorCode::checkpoint) << "a tag that is not there";
  save(*store, small_state(1), "a", 1);
  const auto checkpoint = store->open("a");
  const auto read = [&](const char* name, const StateBox& box) {
    return code_of([&] { checkpoint->read(name, box, at::full({box.rows, box.columns}, 0, at::kFloat)); });
  };
  EXPECT_EQ(read("block.0.weight", {0, 0, 5, 6}), std::nullopt);
  EXPECT_EQ(read("block.1.weight", {0, 0, 5, 6}), ErrorCode::checkpoint) << "a tensor that is not there";
  EXPECT_EQ(read("block.0.weight", {1, 0, 5, 6}), ErrorCode::checkpoint) << "a box outside of its tensor";
}

// Every file in turn has one byte changed, then is cut in half, then is away.
void check_damage(const StoreMaker& make) {
  const TempFolder folder;
  save(*open_store(make, folder), large_state(1), "a", 1);
  const auto is_found = [&] {
    const auto store = open_store(make, folder, false);
    if (names(*store).empty()) return true;
    try {
      return !store->open("a")->verify().empty();
    } catch (const Error& e) {
      return e.code() == ErrorCode::checkpoint;
    }
  };
  EXPECT_FALSE(is_found());
  for (const std::string& path : files_in(folder)) {
    std::ifstream file(path, std::ios::binary);
    const std::string right{std::istreambuf_iterator<char>(file), {}};
    const auto put = [&](const std::string& text) { std::ofstream(path, std::ios::binary) << text; };
    for (const size_t at : {size_t{0}, right.size() / 2, right.size() - 1}) {
      if (at >= right.size()) continue;  // an empty file
      std::string wrong = right;
      wrong[at] = static_cast<char>(wrong[at] ^ 1);
      put(wrong);
      EXPECT_TRUE(is_found()) << path << ": a changed bit in byte " << at << " is not found";
    }
    put(right.substr(0, right.size() / 2));
    EXPECT_TRUE(right.empty() || is_found()) << path << ": that it was cut short is not found";
    fs::remove(path);
    EXPECT_TRUE(is_found()) << path << ": that it is missing is not found";
    put(right);
  }
  EXPECT_FALSE(is_found());
}

using StoreCheck = void (*)(const StoreMaker&);
constexpr std::pair<const char*, StoreCheck> kStoreChecks[] = {
    {"any_box_of_any_cut_comes_back", check_values},
    {"tells_what_it_holds", check_descriptions},
    {"a_tag_appears_when_it_is_committed", check_commit},
    {"discard_leaves_what_was_there_before", check_discard},
    {"replaced_and_removed_tags_stay_readable_where_they_are_open", check_replace_and_remove},
    {"lists_the_newest_tag_first", check_order},
    {"the_owner_removes_what_a_killed_save_has_left", check_killed_saves},
    {"names_what_it_does_not_list", check_problems},
    {"refuses_what_is_not_there", check_refusals},
    {"finds_damage_in_every_file", check_damage},
};

}  // namespace

Suite checkpoint_store_suite() {
  Suite suite;
  for (const auto& [name, check] : kStoreChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       Host host;
                       check([&] {
                         return installed_plugins().make<CheckpointStore>(CheckpointStore::kKind, subject.name,
                                                                          subject.options, host.services);
                       });
                     }});
  return suite;
}

void run_checkpoint_store_case(const std::string& name, const StoreMaker& make) {
  for (const auto& [known, check] : kStoreChecks)
    if (name == known) return check(make);
  FAIL() << "the suite of checkpoint_store has no case " << name;
}

}  // namespace drivetrain::test
