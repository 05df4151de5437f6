// Option tables: typed parsing, every problem at once in file order, and the schema.
#include "base/suggest.h"
#include "config/table_check.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

struct Offload {
  std::string device = "none";
  bool pin = true;
};
struct Sharding {
  int stage = 0;
  int64_t bucket = 500'000'000;
  double momentum = 0.9;
  std::vector<double> betas = {0.9, 0.999};
  std::optional<int64_t> limit;
  std::string mode = "fast";
  std::vector<std::string> files;
  Offload offload;
};

OptionTable offload_table() {
  return table<Offload>()
      .field("device", &Offload::device, "where to put it")
      .one_of({"none", "cpu"})
      .field("pin_memory", &Offload::pin, "page-locked memory");
}

OptionTable sharding_table() {
  return table<Sharding>()
      .field("stage", &Sharding::stage, "what is split")
      .range(0, 3)
      .required()
      .field("reduce_bucket_size", &Sharding::bucket, "elements per bucket")
      .at_least(1)
      .alias("bucket_size")
      .field("momentum", &Sharding::momentum, "decay rate")
      .field("betas", &Sharding::betas, "decay rates")
      .length(2)
      .range(0, 1)
      .field("limit", &Sharding::limit, "at most this many")
      .field("mode", &Sharding::mode, "how")
      .one_of({"fast", "Exact"})
      .field("files", &Sharding::files, "inputs")
      .path()
      .group("offload_optimizer", &Sharding::offload, offload_table(), "what leaves the device")
      .renamed("bucket_elements", "reduce_bucket_size")
      .refused("sequential", "not in this version: gathers follow the program")
      .belongs_to("interval", "recompute/full", "every");
}

const std::string kOwner = "data_parallel/split";

Sharding parse_good(const std::string& text) {
  Problems problems;
  const auto options = sharding_table().parse(parse_json(text, "dir/a.json"), kOwner, "zero_optimization", problems);
  EXPECT_EQ(problems.text(), "");
  return *std::static_pointer_cast<Sharding>(options);
}

std::string option_problems(const std::string& text) {
  Problems problems;
  sharding_table().parse(parse_json(text, "a.json"), kOwner, "zero_optimization", problems);
  return problems.text();
}

TEST(Options, Good_sections_fill_the_struct_and_leave_defaults) {
  const Sharding s = parse_good(R"({"stage": 2.0, "bucket_size": 5e8, "betas": [0, 1], "limit": null, "mode": "EXACT",
                                    "_note": 1, "$schema": "x", "offload_optimizer": {"device": "CPU"}})");
  EXPECT_EQ(s.stage, 2);
  EXPECT_EQ(s.bucket, 500'000'000);
  EXPECT_EQ(s.betas, (std::vector<double>{0, 1}));
  EXPECT_FALSE(s.limit);
  EXPECT_EQ(s.mode, "Exact");
  EXPECT_EQ(s.offload.device, "cpu");
  EXPECT_TRUE(s.offload.pin);
  EXPECT_EQ(parse_good(R"({"stage": 1, "limit": 7})").limit, 7);
}

TEST(Options, Unknown_keys_get_the_nearest_name_and_the_list) {
  EXPECT_EQ(option_problems("{\"stage\": 1,\n  \"stgae\": 1}"),
            "a.json:2:3  zero_optimization.stgae is not an option of data_parallel/split\n"
            "   did you mean \"stage\"?   known here: stage, reduce_bucket_size, momentum, betas, limit, mode, files, "
            "offload_optimizer");
  EXPECT_EQ(option_problems(R"({"stage": 1, "offload_optimizer": {"devise": "cpu"}})"),
            "a.json:1:36  zero_optimization.offload_optimizer.devise is not an option of data_parallel/split\n"
            "   did you mean \"device\"?   known here: device, pin_memory");
  EXPECT_HAS(option_problems(R"({"stage": 1, "bucket_sise": 1})"), "did you mean \"bucket_size\"?");
  EXPECT_FALSE(has(option_problems(R"({"stage": 1, "qwertz": 1})"), "did you mean"));
}

TEST(Options, Wrong_types_and_ranges_name_option_owner_and_both_sides) {
  EXPECT_EQ(option_problems(R"({"stage": "two"})"),
            "a.json:1:11  zero_optimization.stage of data_parallel/split: expected integer, found string \"two\"");
  EXPECT_EQ(option_problems(R"({"stage": 1.5})"),
            "a.json:1:11  zero_optimization.stage of data_parallel/split: expected integer, found number 1.5");
  EXPECT_EQ(option_problems(R"({"stage": 4})"),
            "a.json:1:11  zero_optimization.stage is 4, but data_parallel/split takes 0 to 3");
  EXPECT_EQ(option_problems(R"({"stage": 1, "bucket_size": 0})"),
            "a.json:1:29  zero_optimization.bucket_size is 0, but data_parallel/split takes at least 1");
  EXPECT_EQ(option_problems(R"({"stage": 1, "bucket_size": 1e19})"),
            "a.json:1:29  zero_optimization.bucket_size of data_parallel/split: 1e+19 is out of range for an integer");
  EXPECT_EQ(option_problems(R"({"stage": 1, "betas": [0.9, "b"]})"),
            "a.json:1:29  zero_optimization.betas of data_parallel/split: expected number, found string \"b\"");
  EXPECT_EQ(option_problems(R"({"stage": 1, "betas": [0.9, 1.5]})"),
            "a.json:1:29  zero_optimization.betas[1] is 1.5, but data_parallel/split takes 0 to 1");
  EXPECT_EQ(option_problems(R"({"stage": 1, "betas": [0.9]})"),
            "a.json:1:23  zero_optimization.betas of data_parallel/split: expected 2 elements, found 1");
  EXPECT_EQ(option_problems(R"({"stage": 1, "betas": 0.9})"),
            "a.json:1:23  zero_optimization.betas of data_parallel/split: expected list of number, found number 0.9");
  EXPECT_EQ(
      option_problems(R"({"stage": 1, "limit": true})"),
      "a.json:1:23  zero_optimization.limit of data_parallel/split: expected integer or null, found boolean true");
  EXPECT_EQ(option_problems(R"({"stage": 1, "mode": "exakt"})"),
            "a.json:1:22  zero_optimization.mode is \"exakt\", but data_parallel/split takes \"fast\" or \"Exact\"\n"
            "   did you mean \"Exact\"?");
  EXPECT_EQ(option_problems(R"({"stage": 1, "offload_optimizer": true})"),
            "a.json:1:35  zero_optimization.offload_optimizer of data_parallel/split: expected an object of options, "
            "found boolean true");
  EXPECT_HAS(option_problems(R"({"stage": 1, "momentum": "auto"})"), "leave the key out for the default");
}

TEST(Options, A_missing_required_option_is_said_at_the_section) {
  EXPECT_EQ(option_problems(" {}"),
            "a.json:1:2  zero_optimization.stage is missing: data_parallel/split needs it (what is split)");
}

TEST(Options, Alias_and_name_together_must_agree) {
  EXPECT_EQ(option_problems(R"({"stage": 1, "bucket_size": 2, "reduce_bucket_size": 2})"), "");
  EXPECT_EQ(
      option_problems(R"({"stage": 1, "bucket_size": 2, "reduce_bucket_size": 3})"),
      "a.json:1:32  zero_optimization.reduce_bucket_size and zero_optimization.bucket_size (a.json:1:14) mean the "
      "same option and differ: 3 and 2\n   keep one of them");
}

TEST(Options, Redirects_rename_with_a_note_or_refuse_with_the_reason) {
  Problems problems;
  const auto options = sharding_table().parse(parse_json(R"({"stage": 1, "bucket_elements": 7})", "a.json"), kOwner,
                                              "zero_optimization", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(std::static_pointer_cast<Sharding>(options)->bucket, 7);
  ASSERT_EQ(problems.notes().size(), 1u);
  EXPECT_EQ(problems.notes()[0].message,
            "zero_optimization.bucket_elements of data_parallel/split: renamed to \"reduce_bucket_size\"");
  EXPECT_EQ(option_problems(R"({"stage": 1, "sequential": false})"),
            "a.json:1:14  zero_optimization.sequential of data_parallel/split: not in this version: gathers follow the "
            "program");
  EXPECT_HAS(option_problems(R"({"stage": 1, "interval": 1})"), "belongs to recompute/full as \"every\"");
}

TEST(Options, Input_paths_are_relative_to_the_file_or_the_current_folder) {
  const std::string here = std::filesystem::current_path().string();
  const Sharding s = parse_good(R"({"stage": 1, "files": ["x/*.txt", "../y", "/z", ""]})");
  EXPECT_EQ(s.files, (std::vector<std::string>{here + "/dir/x/*.txt", here + "/y", "/z", ""}));
  Value set = parse_json(R"({"stage": 1, "files": ["x"]})", "dir/a.json");
  Value typed("x");
  typed.where = {"--set #1", 0, 0};
  set.set("files", Value(Value::Array{typed}));
  Problems problems;
  const auto options = sharding_table().parse(set, kOwner, "", problems);
  EXPECT_EQ(std::static_pointer_cast<Sharding>(options)->files[0], here + "/x");
}

// By `launch --copy`.
TEST(Options, Input_paths_of_a_config_that_was_brought_here_are_relative_to_where_it_came_from) {
  setenv("DRIVETRAIN_CONFIG_COPY", "/copies/a.json", 1);
  setenv("DRIVETRAIN_CONFIG_FOLDER", "/home/me", 1);
  const auto file_of = [](const std::string& config) {
    Problems problems;
    const auto options =
        sharding_table().parse(parse_json(R"({"stage": 1, "files": ["../x"]})", config), kOwner, "", problems);
    return std::static_pointer_cast<Sharding>(options)->files[0];
  };
  EXPECT_EQ(file_of("/copies/a.json"), "/home/x");
  EXPECT_EQ(file_of("/copies/other.json"), "/x");
  unsetenv("DRIVETRAIN_CONFIG_FOLDER");
  unsetenv("DRIVETRAIN_CONFIG_COPY");
}

struct Blend {
  Value path;
};

TEST(Options, Input_paths_may_stand_in_lists_of_any_form) {
  const OptionTable blend = table<Blend>().field("path", &Blend::path, "what to read").path();
  const std::string here = std::filesystem::current_path().string();
  const auto read = [&](const std::string& text) {
    Problems problems;
    const auto options = blend.parse(parse_json("{\"path\": " + text + "}", "dir/a.json"), kOwner, "", problems);
    EXPECT_EQ(problems.text(), "");
    return std::static_pointer_cast<Blend>(options)->path.to_json();
  };
  EXPECT_EQ(read("\"x\""), "\"" + here + "/dir/x\"");
  EXPECT_EQ(read("[0.5, \"x\"]"), "[0.5,\"" + here + "/dir/x\"]");
  EXPECT_EQ(read("[[0.5, \"x\"], [1, \"/y\"]]"), "[[0.5,\"" + here + "/dir/x\"],[1,\"/y\"]]");
}

TEST(Options, All_problems_come_at_once_in_file_order_with_set_after) {
  Value section = parse_json("{\"offload_optimizer\": {\"device\": 3},\n \"bad\": 1,\n \"stage\": 9}", "a.json");
  for (const int i : {10, 2}) {
    Value v(true);
    v.where = v.key_where = {concat("--set #", i), 0, 0};
    section.set(i == 10 ? "momentum" : "mode", v);
  }
  Problems problems;
  sharding_table().parse(section, kOwner, "s", problems);
  const std::string text = problems.text();
  size_t last = 0;
  for (const char* part : {"a.json:1:34", "a.json:2:2", "a.json:3:11", "--set #2  s.mode", "--set #10  s.momentum"}) {
    EXPECT_HAS(text, part);
    EXPECT_GE(text.find(part), last) << part;
    last = text.find(part);
  }
  EXPECT_EQ(config_error_of([&] { problems.throw_if_any(); }), text);
}

TEST(Options, To_value_reads_back_to_the_same_options) {
  const Sharding s =
      parse_good(R"({"stage": 3, "betas": [0.1, 0.2], "files": ["/a"], "offload_optimizer": {"pin_memory": false}})");
  const Value value = sharding_table().to_value(&s);
  EXPECT_EQ(value.to_json(),
            R"({"stage":3,"reduce_bucket_size":500000000,"momentum":0.9,"betas":[0.1,0.2],"limit":null,"mode":"fast",)"
            R"("files":["/a"],"offload_optimizer":{"device":"none","pin_memory":false}})");
  const Sharding again = parse_good(value.to_json());
  EXPECT_EQ(sharding_table().to_value(&again), value);
}

TEST(Options, A_plugin_as_an_option_is_a_name_or_an_entry) {
  struct Outer {
    PluginChoice source;
  };
  const OptionTable choices = table<Outer>().field("source", &Outer::source, "what is packed").plugin("dataset");
  const auto read = [&](const std::string& text) {
    Problems problems;
    const auto options = choices.parse(parse_json(text, "a.json"), "dataset/outer", "dataset.params", problems);
    return problems.empty() ? choices.to_value(options.get()).to_json() : problems.text();
  };
  EXPECT_EQ(read(R"({"source": "text"})"), R"({"source":{"type":"text","params":{}}})");
  EXPECT_EQ(read(R"({"source": {"type": "text", "params": {"a": 1}}})"),
            R"({"source":{"type":"text","params":{"a":1}}})");
  EXPECT_EQ(read("{}"), R"({"source":null})");
  for (const char* wrong : {"3", "{}", R"({"params": {}})"}) {
    const std::string found = read(concat("{\"source\": ", wrong, "}"));
    for (const char* part : {"dataset.params.source", "\"NAME\" or {\"type\": \"NAME\""})
      EXPECT_NE(found.find(part), std::string::npos) << found;
  }
}

TEST(Options, The_schema_holds_types_limits_defaults_and_old_names) {
  const Value schema = sharding_table().schema();
  EXPECT_EQ(schema.find("$schema")->as_string(), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_FALSE(schema.find("additionalProperties")->as_bool());
  const Value& p = *schema.find("properties");
  EXPECT_EQ(p.find("stage")->to_json(), R"({"type":"integer","minimum":0,"maximum":3,"description":"what is split"})");
  EXPECT_EQ(p.find("betas")->to_json(),
            R"({"type":"array","items":{"type":"number","minimum":0,"maximum":1},"minItems":2,"maxItems":2,)"
            R"("description":"decay rates","default":[0.9,0.999]})");
  EXPECT_EQ(p.find("limit")->find("anyOf")->to_json(), R"([{"type":"integer"},{"type":"null"}])");
  EXPECT_EQ(p.find("mode")->find("enum")->to_json(), R"(["fast","Exact"])");
  EXPECT_TRUE(p.find("bucket_size")->find("deprecated")->as_bool());
  EXPECT_TRUE(p.find("bucket_elements")->find("deprecated")->as_bool());
  EXPECT_TRUE(p.find("offload_optimizer")->find("properties")->find("device"));
  EXPECT_EQ(schema.find("allOf")->to_json(), R"([{"anyOf":[{"required":["stage"]}]}])");
}

struct Wrong {
  int64_t count = 5;
  double rate = 0.5;
  std::string mode = "slow";
  std::vector<double> pair = {1, 2};
  Offload inner;
};

TEST(OptionTable, A_table_that_contradicts_itself_is_told_by_option_and_value) {
  const auto base = [] { return table<Wrong>().field("count", &Wrong::count, ""); };
  EXPECT_EQ(contradiction_in(sharding_table()), "");
  EXPECT_EQ(contradiction_in(base()), "");
  EXPECT_EQ(contradiction_in(base().range(6, 9)), "\"count\" has the default 5, but takes at least 6");
  EXPECT_EQ(contradiction_in(base().range(0, 4)), "\"count\" has the default 5, but takes at most 4");
  EXPECT_EQ(contradiction_in(base().range(6, 9).required()), "") << "nobody gets it";
  EXPECT_EQ(contradiction_in(base().range(9, 6)), "\"count\" has the range 9 to 6, in which nothing lies");
  EXPECT_EQ(contradiction_in(base().field("mode", &Wrong::mode, "").one_of({"fast", "exact"})),
            "\"mode\" has the default \"slow\", but takes \"fast\" or \"exact\"");
  EXPECT_EQ(contradiction_in(base().field("mode", &Wrong::mode, "").one_of({"slow", "Slow"})),
            "\"mode\" has the choice \"Slow\" twice");
  EXPECT_EQ(contradiction_in(base().field("pair", &Wrong::pair, "").length(3)),
            "\"pair\" has the default [1.0,2.0], but takes 3 elements");
  EXPECT_EQ(contradiction_in(base().field("pair", &Wrong::pair, "").range(0, 1)),
            "\"pair\" has the default 2.0, but takes at most 1");
  EXPECT_EQ(contradiction_in(base().field("rate", &Wrong::rate, "").alias("count")), "\"count\" is given twice");
  EXPECT_EQ(contradiction_in(base().renamed("count", "count")), "\"count\" is given twice");
  EXPECT_EQ(contradiction_in(base().renamed("number", "cuont")),
            "\"number\" is said to be renamed to \"cuont\", which is no option");
  EXPECT_EQ(contradiction_in(base().field("_rate", &Wrong::rate, "")),
            "\"_rate\" cannot be reached: keys that begin with _ or $ are notes");
  const OptionTable inner = table<Offload>().field("device", &Offload::device, "").one_of({"cpu"});
  EXPECT_EQ(contradiction_in(base().group("inner", &Wrong::inner, inner)),
            "\"inner.device\" has the default \"none\", but takes \"cpu\"");
}

TEST(Options, Keys_of_the_top_level_are_sent_back_there) {
  EXPECT_HAS(option_problems(R"({"stage": 1, "gradient_clipping": 1})"),
             "\"gradient_clipping\" stands at the top level of the file");
}

TEST(Suggest, Slips_of_fingers_cost_less_and_spelling_style_nothing) {
  EXPECT_EQ(typing_cost("Num-Layers", "num_layers"), 0);
  EXPECT_LT(typing_cost("stgae", "stage"), 1) << "swapped";
  EXPECT_LT(typing_cost("stahe", "stage"), typing_cost("stape", "stage")) << "the key beside it";
  EXPECT_LT(typing_cost("stagge", "stage"), typing_cost("stapge", "stage")) << "doubled";
  EXPECT_GT(typing_cost("kitten", "sitting"), 2);
  EXPECT_EQ(nearest(std::string(1000, 'a'), {"a"}), "");
  EXPECT_EQ(nearest("gradient_acumulation_steps", {"train_steps", "gradient_accumulation_steps"}),
            "gradient_accumulation_steps");
  EXPECT_EQ(nearest("layers", {"hidden_size", "num_layers"}), "num_layers");
  EXPECT_EQ(nearest("lr", {"eps", "betas"}), "");
}

struct Derived {
  std::optional<int64_t> width, heads;
};

TEST(OptionTable, finish_fills_in_what_depends_on_other_options_and_may_refuse) {
  const OptionTable t =
      table<Derived>().field("width", &Derived::width, "").field("heads", &Derived::heads, "").finish([](Derived& o) {
        if (!o.heads) o.heads = o.width.value_or(64) / 8;
        if (*o.heads > 100) throw fail(ErrorCode::config, "too many heads");
      });
  Problems problems;
  const auto parsed = t.parse(parse_json(R"({"width": 32})", "f"), "model/x", "model", problems);
  EXPECT_EQ(t.to_value(parsed.get()).to_json(), R"({"width":32,"heads":4})");
  EXPECT_TRUE(problems.empty());
  t.parse(parse_json(R"({"heads": 101})", "f"), "model/x", "model", problems);
  EXPECT_EQ(problems.text(), "f:1:1  too many heads");
  Problems other;
  t.parse(parse_json(R"({"heads": 101, "nose": 1})", "f"), "model/x", "model", other);
  EXPECT_EQ(other.list().size(), 1u);  // the unknown key only: finish sees sound options
}

}  // namespace
}  // namespace drivetrain
