// Slots of made-up machines: nothing here looks at this host.
#include "study/slots.h"

#include <gtest/gtest.h>
#include <hwloc.h>

#include <fstream>
#include <set>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "planted_study.h"
#include "study/report.h"
#include "study/study_rules.h"

namespace drivetrain::study {
namespace {

class Machine {
 public:
  explicit Machine(const char* text) {
    hwloc_topology_init(&topology_);
    EXPECT_EQ(hwloc_topology_set_synthetic(topology_, text), 0);
    EXPECT_EQ(hwloc_topology_load(topology_), 0);
  }
  ~Machine() { hwloc_topology_destroy(topology_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
};

// Two nodes of four cores with two hardware threads each, numbered 0 to 15.
constexpr const char* kTwoNodes = "NUMANode:2 core:4 pu:2";

StudyFile study_with(const std::string& json) {
  StudyFile study;
  study.path = "study.json";
  read_rules(parse_json(json, "study.json"), study);
  return study;
}

std::string refusal_of(const std::string& json, const std::vector<std::string>& devices = {}) {
  try {
    const Machine machine(kTwoNodes);
    slots_of(study_with(json), machine.get(), devices);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    return e.what();
  }
  return "nothing was refused";
}

TEST(Slots, have_cores_and_devices_of_their_own) {
  const Machine machine(kTwoNodes);
  for (const int count : {2, 3, 4, 8}) {
    const auto slots = slots_of(study_with(R"({"dispatch": {"slots": )" + std::to_string(count) + "}}"), machine.get(),
                                {"4", "5", "6", "7"});
    ASSERT_EQ(slots.size(), static_cast<size_t>(count));
    std::set<int> cpus;
    std::set<std::string> devices;
    for (const Slot& slot : slots) {
      EXPECT_EQ(slot.cpus.size(), static_cast<size_t>(8 / count * 2)) << "both hardware threads of a core";
      for (const int cpu : slot.cpus) EXPECT_TRUE(cpus.insert(cpu).second) << "CPU " << cpu << " is in two slots";
      EXPECT_EQ(slot.devices.empty(), count == 8) << slot.devices;
      EXPECT_TRUE(devices.insert(slot.devices).second || count == 8);
    }
  }
  const auto halves = slots_of(study_with(R"({"dispatch": {"slots": 2}})"), machine.get(), {"4", "5", "6", "7"});
  EXPECT_EQ(halves[0].cores, "0-7") << "a slot is on one node";
  EXPECT_EQ(halves[1].devices, "6,7");
  const auto listed = slots_of(study_with(R"({"dispatch": {"slots": [{"cores": "0,2-3"}, {"cores": "9-11"}]}})"),
                               machine.get(), {"0", "1"});
  EXPECT_EQ(listed[0].cores, "0,2-3");
  EXPECT_EQ(listed[1].devices, "") << "devices that are not listed stay as they are";
  EXPECT_TRUE(slots_of(study_with("{}"), machine.get(), {"0"}).front().cpus.empty());
  EXPECT_TRUE(slots_of(study_with(R"({"dispatch": {"slots": 1}})"), machine.get(), {"0"}).front().cpus.empty());
}

TEST(Slots, what_cannot_be_is_one_message) {
  const auto expect = [](const std::string& json, const std::string& part) {
    EXPECT_NE(refusal_of(json).find(part), std::string::npos) << refusal_of(json);
  };
  expect(R"({"dispatch": {"slots": 9}})", "9 slots and 8 cores that the study may use");
  expect(R"({"dispatch": {"slots": [{"cores": "0-3"}, {"cores": "3-6"}]}})",
         "core 3 is in slot 2 and in one before it");
  expect(R"({"dispatch": {"slots": [{"cores": "0-3"}, {"cores": "4-6"}]}})", "slots of one size");
  expect(R"({"dispatch": {"slots": [{"cores": "0"}, {"cores": "16"}]}})", "the study may use 0-15");
  expect(R"({"dispatch": {"slots": [{"cores": "3-1"}]}})", "numbers of cores that grow");
  expect(R"({"dispatch": {"slots": [{"cores": "0", "devices": "0,1"}, {"cores": "1", "devices": "1,2"}]}})",
         "device 1 is in slot 2");
  for (const char* wrong : {"2", "{}", R"({"slots": 0})", R"({"slots": 1.5})", R"({"slots": []})", R"({"slots": [3]})"})
    expect(R"({"dispatch": )" + std::string(wrong) + "}", "\"dispatch\" is {\"slots\": N}");
  expect(R"({"dispatch": {"slotts": 2}})", "did you mean \"slots\"");
  expect(R"({"dispatch": {"slots": [{"cores": "0", "gpus": "1"}]}})", "a slot has no key \"gpus\"");
}

// Hostfiles of the test.
class HostSlots : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() + "/" + name) << text;
    return folder_.path() + "/" + name;
  }
  // The refusal of these hostfiles as slots.
  std::string refusal(const std::string& one, const std::string& other) const {
    return refusal_of(json(write("one", one), write("other", other)));
  }
  static std::string json(const std::string& one, const std::string& other) {
    return R"({"dispatch": {"slots": [{"hosts": ")" + one + R"("}, {"hosts": ")" + other + "\"}]}}";
  }

  const test::TempFolder folder_;
};

TEST_F(HostSlots, are_hostfiles_of_one_size_that_share_no_host) {
  const Machine machine(kTwoNodes);
  const std::string one = write("one", "a slots=2\nb slots=2\n"), other = write("other", "c slots=2\nd slots=2\n");
  const auto slots = slots_of(study_with(json(one, other)), machine.get(), {});
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[1].hosts, other);
  EXPECT_EQ(slots[1].place(), "hosts c, d");
  EXPECT_TRUE(slots[1].cpus.empty());
  EXPECT_EQ(ranks_of_hostfile(other, "study.json"), 4);
  const auto expect = [](const std::string& refusal, const std::string& part) {
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  };
  expect(refusal("a slots=2\n", "b slots=2\nA slots=2\n"), "the host A");
  expect(refusal("a slots=2\n", "b slots=1\n"), "has 1 ranks on its host");
  expect(refusal("a slots=2\n", "b slots=2\nb slots=2\n"), "\"hosts\": ");
  expect(refusal_of(json(one, folder_.path() + "/none")), "/none");
  expect(refusal_of(R"({"dispatch": {"slots": [{"hosts": "a", "cores": "0"}]}})"), "{\"hosts\": HOSTFILE}");
  expect(refusal_of(R"({"dispatch": {"slots": [{"cores": "0"}, {"hosts": "a"}]}})"), "all of them are hosts");
}

// Its runs would be taken for those of as many ranks as before.
TEST_F(HostSlots, a_hostfile_with_other_ranks_than_when_the_study_began_is_refused) {
  std::vector<CellPlan> plans(1);
  plans[0].hosts = write("one", "a slots=2\n"), plans[0].world_size = 2;
  EXPECT_NO_THROW(check_ranks(plans, "study.json"));
  write("one", "a slots=3\n");
  try {
    check_ranks(plans, "study.json");
    ADD_FAILURE() << "taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    EXPECT_NE(std::string(e.what()).find("has 3 slots now, and had 2"), std::string::npos) << e.what();
  }
}

TEST(Slots, of_slurm_are_tasks_with_options_that_the_study_does_not_say_itself) {
  const Dispatch plain = study_with(R"({"dispatch": {"slurm": {}}})").dispatch;
  EXPECT_TRUE(plain.is_slurm);
  EXPECT_EQ(plain.slurm.at_once, 0);
  const Dispatch full =
      study_with(R"({"dispatch": {"slurm": {"options": ["--partition=gpu", "-c8"], "at_once": 4}}})").dispatch;
  EXPECT_EQ(full.slurm.options, (std::vector<std::string>{"--partition=gpu", "-c8"}));
  EXPECT_EQ(full.slurm.at_once, 4);
  EXPECT_FALSE(study_with(R"({"dispatch": {"slots": 1}})").dispatch.is_slurm);
  const auto expect = [](const std::string& json, const std::string& part) {
    EXPECT_NE(refusal_of(json).find(part), std::string::npos) << refusal_of(json);
  };
  expect(R"({"dispatch": {"slurm": true}})", "\"slurm\" is {\"options\"");
  expect(R"({"dispatch": {"slurm": {}, "slots": 2}})", "leave one of them out");
  expect(R"({"dispatch": {"slurm": {"partition": "gpu"}}})", "\"slurm\" has no key \"partition\"");
  expect(R"({"dispatch": {"slurm": {"options": "--partition=gpu"}}})", "is a list of words");
  expect(R"({"dispatch": {"slurm": {"options": ["gpu"]}}})", "an option and its value are one word");
  for (const char* own : {"--array=0-3", "--nodes=2", "-N2", "--wrap=true", "-o", "--output=x"})
    expect(R"({"dispatch": {"slurm": {"options": [")" + std::string(own) + "\"]}}}", "is not the study's to take");
  for (const char* at_once : {"0", "1.5", "\"2\""})
    expect(R"({"dispatch": {"slurm": {"at_once": )" + std::string(at_once) + "}}}", "\"at_once\" is a whole number");
  expect(R"({"budget_s": 60, "dispatch": {"slurm": {}}})", "\"budget_s\" counts time on this host");
}

TEST(Slots, what_a_slot_cannot_give_is_refused) {
  std::vector<Cell> cells(1);
  cells[0].id = "the cell";
  std::vector<CellPlan> plans(1);
  const std::vector<Slot> slots = {{.cpus = {0}, .cores = "0", .devices = "0,1"},
                                   {.cpus = {1}, .cores = "1", .devices = "2,3"}};
  const auto refused = [&](const std::string& part) {
    try {
      check_slots(slots, cells, plans, "study.json");
    } catch (const Error& e) {
      return std::string(e.what()).find(part) != std::string::npos;
    }
    return part.empty();
  };
  EXPECT_TRUE(refused(""));
  plans[0].resolved = parse_json(R"({"device": "cuda"})", "config"), plans[0].world_size = 3;
  EXPECT_TRUE(refused("the cell has 3 ranks, and a slot 2 devices"));
  plans[0].resolved = parse_json(R"({"device": "cpu"})", "config");
  EXPECT_TRUE(refused(""));
  plans[0].environment = {"CUDA_VISIBLE_DEVICES=1"};
  EXPECT_TRUE(refused("sets CUDA_VISIBLE_DEVICES"));
  plans[0].environment = {}, plans[0].hosts = "hostfile", plans[0].names_hosts = true;
  EXPECT_TRUE(refused("slots say where a run is"));
}

TEST(Slots, the_report_says_what_ran_beside_what) {
  StudyRecord study = planted();
  EXPECT_EQ(slots_html(study), "");
  for (CellRecord& cell : study.cells)
    for (RunRecord& run : cell.runs) run.slot = 1 + run.block % 2, run.cores = run.slot == 1 ? "0-3" : "4-7";
  study.cells[0].runs[0].beside = {{"a=1,b=0", 0}, {"a=0,b=1", 0}};
  study.cells[0].runs[1].beside = {{"a=1,b=0", 1}};
  const Analysis analysis = analysis_of(study);
  EXPECT_NE(slots_text(study).find("slot 1: cores 0-3; slot 2: cores 4-7"), std::string::npos) << slots_text(study);
  EXPECT_NE(slots_html(study).find("a 0, b 1; a 1, b 0 (2 times)"), std::string::npos) << slots_html(study);
  EXPECT_NE(runs_csv(study, analysis).find("1,0-3,,\"a=1,b=0 repeat 1; a=0,b=1 repeat 1\""), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::study
