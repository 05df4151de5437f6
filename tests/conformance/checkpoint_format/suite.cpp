#include <drivetrain/testkit/checkpoint_format/suite.h>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <thread>

#include <drivetrain/testkit/checkpoint_store/states.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class StateCheckpoint final : public Checkpoint {
 public:
  StateCheckpoint(State state, Value facts) : state_(std::move(state)), facts_(std::move(facts)) {}
  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override {
    std::vector<StoredTensor> list;
    for (const auto& [name, t] : state_) list.push_back({name, t.sizes().vec(), t.scalar_type()});
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    into.copy_(as_matrix(state_.at(name)).narrow(0, box.row, box.rows).narrow(1, box.column, box.columns));
  }
  std::vector<std::string> verify() const override { return {}; }

 private:
  const State state_;
  const Value facts_;
};

State weights() {
  return {{"model/a.weight", numbers({5, 3}, at::kFloat, 1)}, {"model/b.bias", numbers({7}, at::kFloat, 2)}};
}

State with_moments() {
  State state = weights();
  int seed = 3;
  for (const auto& [name, values] : weights())
    for (const char* moment : {".exp_avg", ".exp_avg_sq"})
      state["optimizer/" + name.substr(6) + moment] = numbers(values.sizes(), at::kFloat, ++seed).abs();
  return state;
}

Value facts_of(bool moments) {
  return parse_json(moments ? R"({"naming": "hf", "step": 12, "updates": 11, "optimizer_type": "AdamW", "lr": 0.25,
                                  "optimizer_options": {"lr": 0.5, "betas": [0.9, 0.99], "eps": 1e-8}})"
                            : R"({"naming": "hf", "step": 12})",
                    "facts");
}

struct Trial {
  const FormatMaker& make;
  std::vector<std::string> folders;  // of this format
};

std::shared_ptr<const Checkpoint> open(const Trial& trial, const std::string& folder) {
  return trial.make()->open(folder, "");
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_recognizes(const Trial& trial) {
  const auto format = trial.make();
  for (const std::string& folder : trial.folders)
    EXPECT_NE(format->recognizes(folder), "") << folder << " is one of this format";
  const TempFolder other;
  EXPECT_EQ(format->recognizes(other.path()), "") << "an empty folder";
  EXPECT_EQ(format->recognizes(other / "none"), "") << "a folder that is not there";
  std::ofstream(other / "config.json") << "{}";
  std::ofstream(other / "model.safetensors") << "12345678";
  EXPECT_EQ(format->recognizes(other.path()), "") << "a folder of Hugging Face";
  EXPECT_EQ(format->recognizes(other / "config.json"), "") << "a file";
}

// States of the kinds that a run converts.
void check_round_trip(const Trial& trial) {
  for (const bool moments : {false, true}) {
    const auto format = trial.make();
    if (!format->writes())
      return left_out(
          "folders of the format",
          "CheckpointFormat::writes() is false, and a suite has no folder of another program: a test of the "
          "plugin's own gives some to run_checkpoint_format_cases");
    const TempFolder folder;
    const State state = moments ? with_moments() : weights();
    const Value facts = facts_of(moments);
    format->write(folder.path(), StateCheckpoint(state, facts));
    ASSERT_NE(trial.make()->recognizes(folder.path()), "") << "what it has written itself";
    const auto checkpoint = open(trial, folder.path());
    EXPECT_TRUE(same(read_all(*checkpoint), state))
        << "values after a write, " << (moments ? "with" : "without") << " an optimizer's state";
    EXPECT_EQ(checkpoint->verify(), std::vector<std::string>{}) << "problems of what it has just written";
    for (const char* fact : {"naming", "step", "updates"}) {
      const Value* const found = checkpoint->facts().find(fact);
      const Value* const wanted = facts.find(fact);
      EXPECT_TRUE(!wanted || (found && *found == *wanted)) << "the fact " << fact;
    }
  }
}

void check_boxes(const Trial& trial) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)); };
  for (const std::string& folder : trial.folders) {
    const auto checkpoint = open(trial, folder);
    for (const auto& [name, tensor] : read_all(*checkpoint)) {
      const at::Tensor matrix = as_matrix(tensor);
      for (const auto dtype : {tensor.scalar_type(), at::kDouble}) {
        StateBox box{pick(matrix.size(0)), pick(matrix.size(1)), 0, 0};
        box.rows = pick(matrix.size(0) - box.row), box.columns = pick(matrix.size(1) - box.column);
        const at::Tensor into = at::full({box.columns, box.rows}, 77, dtype).t();
        checkpoint->read(name, box, into);
        const at::Tensor wanted = matrix.narrow(0, box.row, box.rows).narrow(1, box.column, box.columns).to(dtype);
        EXPECT_TRUE(equal_bits(into, wanted)) << "a box of " << name << " as " << dtype;
      }
    }
  }
}

void check_facts(const Trial& trial) {
  for (const std::string& folder : trial.folders) {
    const auto checkpoint = open(trial, folder);
    const Value& facts = checkpoint->facts();
    for (const char* text : {"format", "naming"}) {
      const Value* const found = facts.find(text);
      EXPECT_TRUE(found && found->is_string() && !found->as_string().empty()) << "the fact " << text;
    }
    const Value* const notes = facts.find("notes");
    EXPECT_TRUE(!notes || notes->is_array()) << "notes are a list";
    std::map<std::string, std::vector<int64_t>> shapes;
    std::string before;
    bool moments = false;
    for (const StoredTensor& t : checkpoint->tensors()) {
      EXPECT_LT(before, t.name) << "tensors are sorted by name";
      before = t.name;
      shapes[t.name] = t.shape;
    }
    for (const auto& [name, shape] : shapes) {
      if (!name.starts_with("optimizer/")) {
        EXPECT_TRUE(name.starts_with("model/")) << name << ": an owner that nobody knows";
        continue;
      }
      moments = true;
      const std::string weight = "model/" + name.substr(10, name.rfind('.') - 10);
      EXPECT_TRUE(shapes.count(weight) && shapes[weight] == shape) << name << " has the shape of its weight";
    }
    const Value* const updates = facts.find("updates");
    EXPECT_TRUE(!moments || (updates && updates->is_int())) << "moments without updates";
  }
}

void check_tag(const Trial& trial) {
  for (const std::string& folder : trial.folders) {
    std::optional<ErrorCode> code;
    try {
      trial.make()->open(folder, "no_such_tag");
    } catch (const Error& e) {
      code = e.code();
    }
    EXPECT_EQ(code, ErrorCode::config) << "a tag that is not there";
  }
}

// A checkpoint outlives its format, and is read by several threads, as ranks of one process do.
void check_threads(const Trial& trial) {
  for (const std::string& folder : trial.folders) {
    const auto checkpoint = open(trial, folder);
    const State wanted = read_all(*checkpoint);
    std::vector<std::thread> threads;
    std::vector<char> right(4, 0);
    for (size_t i = 0; i < right.size(); ++i)
      threads.emplace_back(
          [&, i] { right[i] = same(read_all(i % 2 == 0 ? *checkpoint : *open(trial, folder)), wanted); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::count(right.begin(), right.end(), 1), 4) << "values on four threads";
  }
}

// What becomes of a folder in which something is wrong. No value: read like the whole one.
std::optional<ErrorCode> reading(const Trial& trial, const std::string& folder, const State& whole,
                                 const std::string& what) {
  try {
    if (trial.make()->recognizes(folder).empty()) return ErrorCode::config;
    const State found = read_all(*open(trial, folder));
    EXPECT_TRUE(same(found, whole)) << what << ": read with other values and no word";
    return std::nullopt;
  } catch (const Error& e) {
    return e.code();
  }
}

bool is_refusal(std::optional<ErrorCode> code) {
  return !code || *code == ErrorCode::config || *code == ErrorCode::checkpoint || *code == ErrorCode::io;
}

// Every file in turn is cut short, is missing, is a folder, a pipe; and has bytes changed, which may be harmless.
void check_damage(const Trial& trial) {
  std::mt19937 random(3);
  for (const std::string& folder : trial.folders) {
    const TempFolder copy;
    fs::copy(folder, copy / "x", fs::copy_options::recursive);
    const State whole = read_all(*open(trial, folder));
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(copy / "x"))
      if (entry.is_regular_file()) files.push_back(entry.path());
    for (const fs::path& path : files) {
      const std::string right = bytes_of(path);
      const auto tried = [&](const char* what) {
        const std::string which = concat(fs::relative(path, copy.path()).string(), ", ", what);
        EXPECT_TRUE(is_refusal(reading(trial, copy / "x", whole, which))) << which << ": another error";
      };
      std::ofstream(path, std::ios::binary | std::ios::trunc) << right.substr(0, right.size() / 2);
      tried("cut in half");
      fs::remove(path);
      tried("missing");
      fs::create_directory(path);
      tried("a folder");
      fs::remove(path);
      ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
      tried("a pipe");
      fs::remove(path);
      for (int i = 0; i < 5 && !right.empty(); ++i) {
        std::string wrong = right;
        for (int places = 0; places < 3; ++places) wrong[random() % wrong.size()] = static_cast<char>(random());
        std::ofstream(path, std::ios::binary | std::ios::trunc) << wrong;
        try {
          if (!trial.make()->recognizes(copy / "x").empty()) read_all(*open(trial, copy / "x"));
        } catch (const Error& e) {
          EXPECT_TRUE(is_refusal(e.code())) << path << ", bytes changed: " << e.what();
        }
      }
      std::ofstream(path, std::ios::binary | std::ios::trunc) << right;
    }
    EXPECT_EQ(reading(trial, copy / "x", whole, "all files"), std::nullopt) << "the whole folder again";
  }
}

using FormatCheck = void (*)(const Trial&);
constexpr std::pair<const char*, FormatCheck> kFormatChecks[] = {
    {"recognizes_its_own_folders_and_no_others", check_recognizes},
    {"what_it_writes_comes_back", check_round_trip},
    {"any_box_is_read", check_boxes},
    {"tells_what_it_holds", check_facts},
    {"refuses_a_tag_that_is_not_there", check_tag},
    {"ranks_read_at_once", check_threads},
    {"damage_is_refused", check_damage},
};

}  // namespace

void run_checkpoint_format_case(const std::string& name, const FormatMaker& make,
                                const std::vector<std::string>& folders) {
  Trial trial{make, folders};
  const TempFolder written;
  if (const auto format = make(); format->writes()) {
    fs::create_directory(written / "x");
    format->write(written / "x", StateCheckpoint(with_moments(), facts_of(true)));
    trial.folders.push_back(written / "x");
  }
  for (const auto& [known, check] : kFormatChecks)
    if (name == known) return check(trial);
  FAIL() << "the suite of checkpoint_format has no case " << name;
}

void run_checkpoint_format_cases(const FormatMaker& make, const std::vector<std::string>& folders) {
  for (const auto& [name, check] : kFormatChecks) {
    SCOPED_TRACE(name);
    run_checkpoint_format_case(name, make, folders);
  }
}

Suite checkpoint_format_suite() {
  Suite suite;
  for (const auto& [name, check] : kFormatChecks)
    suite.push_back({name, [name = name](const Subject& subject) {
                       Host host;
                       const auto make = [&] {
                         return installed_plugins().make<CheckpointFormat>(CheckpointFormat::kKind, subject.name,
                                                                           subject.options, host.services);
                       };
                       run_checkpoint_format_case(name, make, {});
                     }});
  return suite;
}

}  // namespace drivetrain::test
