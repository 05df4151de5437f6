// From the sections of a config to the plugins of a run.
#include "config_sections_fixture.h"

namespace drivetrain {
namespace {

TEST(Sections, Defaults_stand_in_for_what_the_file_leaves_out) {
  const auto s = select("");
  EXPECT_EQ(names(s, "communicator"), "local");  // the one for this device
  EXPECT_EQ(names(s, "data_parallel"), "ddp");
  EXPECT_EQ(names(s, "precision"), "");
  EXPECT_EQ(names(s, "optimizer"), "adamw");
  EXPECT_EQ(names(s, "monitor"), "console jsonl");
}

TEST(Sections, The_three_forms_of_a_section_mean_the_same) {
  const Selection typed = one(R"("optimizer": {"type": "ADAMW", "params": {"lr": 1}})", "optimizer");
  EXPECT_EQ(typed.name, "adamw");
  EXPECT_EQ(typed.path, "optimizer.params");
  EXPECT_EQ(typed.params.to_json(), R"({"lr":1})");
  const Selection bare = one(R"("optimizer": {"lr": 1, "_why": "x"})", "optimizer");
  EXPECT_EQ(bare.name, "adamw");
  EXPECT_EQ(bare.path, "optimizer");
  EXPECT_EQ(bare.params.find("lr")->as_int(), 1);
  const Selection word = one(R"("optimizer": "SGD")", "optimizer");
  EXPECT_EQ(word.name, "sgd");
  EXPECT_EQ(word.params.to_json(), "{}");
  EXPECT_EQ(one(R"("optimizer": {"type": "sgd", "params": null})", "optimizer").name, "sgd");
  EXPECT_EQ(one(R"("optimizer": {"params": {"lr": 1}})", "optimizer").name, "adamw");
  EXPECT_EQ(one(R"("optimizer": null)", "optimizer").name, "adamw");
}

TEST(Sections, Names_of_other_programs_and_of_kinds_are_understood) {
  EXPECT_EQ(one(R"("scheduler": {"type": "WarmupLR", "params": {}})", "lr_schedule").name, "warmup");
  EXPECT_EQ(one(R"("lr_schedule": "warmup")", "lr_schedule").name, "warmup");
  EXPECT_EQ(one(R"("zero_optimization": {"stage": 1})", "data_parallel").name, "zero");
  EXPECT_EQ(one(R"("zero_optimization": {"stage": 1})", "data_parallel").path, "zero_optimization");
}

TEST(Sections, True_stands_for_options_where_DeepSpeed_had_that_form) {
  const Selection zero = one(R"("zero_optimization": true)", "data_parallel");
  EXPECT_EQ(zero.name, "zero");
  EXPECT_EQ(zero.params.to_json(), R"({"stage":1})");
  const Problems p = problems_of(R"("zero_optimization": true)");
  ASSERT_EQ(p.notes().size(), 1u);
  EXPECT_EQ(p.notes()[0].message, "zero_optimization: true means {\"stage\":1}");
}

TEST(Sections, True_is_the_section_with_default_options_wherever_false_is_known) {
  const Selection fused = one(R"("fused": true)", "strategy");
  EXPECT_EQ(fused.name, "fused");
  EXPECT_EQ(fused.params.to_json(), "{}");
  EXPECT_TRUE(fused.enabled);
  auto list = plugins();
  list.push_back({"precision", "half", "bf16", {}, false, ""});
  EXPECT_EQ(names(select(R"("bf16": true)", list), "precision"), "half");
  EXPECT_HAS(refusal(R"("bf16": true)"), "no installed plugin reads this section");
  EXPECT_EQ(names(select(R"("monitors": true, "data_parallel": true)"), "monitor"), "console jsonl");
  EXPECT_HAS(refusal(R"("optimizer": true)"), "optimizer: true does not say which optimizer");
  EXPECT_EQ(names(select(R"("data_parallel": true, "zero_optimization": {"stage": 1})"), "data_parallel"), "zero");
  EXPECT_HAS(refusal(R"("context_parallel": true)"), "context_parallel needs a \"type\"");
}

TEST(Sections, Words_for_on_and_off_are_not_taken_for_types) {
  EXPECT_EQ(refusal(R"("fused": "off")"),
            "a.json:3:10  fused: \"off\" is read as the name of a type\n   write false, without quotation marks");
  EXPECT_HAS(refusal(R"("fused": "True")"), "write true, without quotation marks");
  EXPECT_HAS(refusal(R"("fused": "flase")"), "did you mean \"false\"?");
  EXPECT_HAS(refusal(R"("bf16": {"enabled": "ture"})"),
             "bf16.enabled: expected boolean, found string \"ture\"\n   write true, without quotation marks");
  EXPECT_HAS(refusal(R"("bf16": {"enabled": 2})"), "bf16.enabled: expected boolean, found integer 2");
}

TEST(Sections, Mistyped_words_of_a_section_are_told) {
  EXPECT_HAS(refusal(R"("optimizer": {"type": "adamw", "parms": {"lr": 1}})"), "did you mean \"params\" by \"parms\"?");
  EXPECT_HAS(refusal(R"("optimizer": {"tpye": "adamw", "params": {"lr": 1}})"), "did you mean \"type\" by \"tpye\"?");
}

TEST(Sections, An_option_at_the_top_level_is_sent_to_its_plugin) {
  Problems problems;
  select_plugins(config_of(R"("lr": 1)"), kKinds, plugins(), "cpu", problems,
                 [](const std::string& key, const std::vector<Selection>& selected) {
                   EXPECT_EQ(names(selected, "optimizer"), "adamw");
                   return key == "lr" ? std::string("optimizer/adamw: move it into \"optimizer.params\"") : "";
                 });
  EXPECT_EQ(problems.text(),
            "a.json:3:1  lr is not a setting or a section\n   it is an option of optimizer/adamw: move it into "
            "\"optimizer.params\"");
}

TEST(Sections, A_section_that_no_plugin_claims_names_the_way_to_a_plugin_s_folder) {
  EXPECT_HAS(refusal(R"("quantised_gathers": {"bits": 4})"), "--plugin-path FOLDER");
  EXPECT_EQ(refusal(R"("quantised_gathers": 4)").find("--plugin-path"), std::string::npos) << "a value is no section";
  EXPECT_EQ(refusal(R"("optimzer": {"lr": 4})").find("--plugin-path"), std::string::npos) << "a typing error";
}

TEST(Sections, A_mixture_of_both_forms_is_refused) {
  EXPECT_EQ(refusal(R"("optimizer": {"type": "adamw", "lr": 1, "params": {}, "eps": 1})"),
            "a.json:3:32  optimizer has \"type\" beside options of its own (\"lr\", \"eps\")\n"
            "   move them into \"params\": {...}");
}

TEST(Sections, Wrong_types_inside_a_section_are_named) {
  EXPECT_HAS(refusal(R"("optimizer": 3)"),
             "a.json:3:14  optimizer: expected a type name or an object, found integer 3");
  EXPECT_HAS(refusal(R"("optimizer": {"type": 3})"), "optimizer.type: expected the name of a type, found integer 3");
  EXPECT_HAS(refusal(R"("optimizer": {"type": "sgd", "params": []})"),
             "optimizer.params: expected an object of options, found array");
  EXPECT_HAS(refusal(R"("bf16": {"enabled": "yes"})"), "bf16.enabled: expected boolean, found string \"yes\"");
}

TEST(Sections, What_is_switched_off_is_accepted_even_unclaimed) {
  const auto bare = without("zero");
  for (const char* body :
       {R"("zero_optimization": {"stage": 0, "reduce_bucket_size": 5e8})", R"("zero_optimization": false)",
        R"("zero_optimization": {"stage": 3, "enabled": false})", R"("bf16": {"enabled": false})", R"("bf16": {})",
        R"("fp16": {"loss_scale": 0})", R"("csv_monitor": {"enabled": false})",
        R"("flops_profiler": {"enabled": false})", R"("elasticity": {})", R"("checkpoint": {"enabled": false})",
        R"("activation_checkpointing": {"type": "none"})"}) {
    EXPECT_EQ(names(select(body, bare), "data_parallel"), "ddp") << body;
  }
  EXPECT_EQ(names(select(R"("zero_optimization": {"stage": 0})"), "data_parallel"), "-zero ddp");
  EXPECT_EQ(names(select(R"("data_parallel": {"enabled": false})"), "data_parallel"), "-ddp");
}

TEST(Sections, A_section_that_one_of_its_options_switches_off_names_the_others_once) {
  const auto notes = [](const std::string& body) {
    const Problems p = problems_of(body);
    EXPECT_EQ(p.text(), "") << body;
    std::string text;
    for (const Problem& note : p.notes()) text += note.message + "|";
    return text;
  };
  EXPECT_EQ(notes(R"("zero_optimization": {"stage": 0, "reduce_every": 2, "_why": 1, "cpu_offload": null})"),
            "zero_optimization.reduce_every has no effect at stage 0; it switches the section off|");
  EXPECT_EQ(notes(R"("zero_optimization": {"type": "zero", "params": {"a": 1, "stage": 0, "b": {}}})"),
            "zero_optimization.params.a, zero_optimization.params.b have no effect at stage 0; it switches the section "
            "off|");
  EXPECT_EQ(notes(R"("zero_optimization": {"stage": 0})"), "");
  EXPECT_EQ(notes(R"("zero_optimization": {"stage": 0, "reduce_every": 2, "enabled": false})"), "");
  EXPECT_EQ(notes(R"("zero_optimization": {"stage": 1, "reduce_every": 2})"), "");
}

TEST(Sections, A_plugin_that_is_not_installed_is_exit_3_with_the_list) {
  const Problems p = problems_of(R"("optimizer": {"type": "adamx"})");
  EXPECT_EQ(p.text(),
            "a.json:3:23  optimizer: no plugin optimizer/adamx is installed\n"
            "   did you mean \"adamw\"?   installed: adamw (also Adam, AdamW), sgd");
  config_error_of([&] { p.throw_if_any(); }, ErrorCode::plugin);
  EXPECT_EQ(
      refusal(R"("zero_optimization": {"stage": 1})", without("zero")),
      "a.json:3:22  zero_optimization: no installed plugin reads this section; it is one for the kind data_parallel\n"
      "   installed: ddp");
  EXPECT_HAS(refusal(R"("bf16": {"enabled": true})"), "one for the kind precision\n   installed: none");
  const Problems gone = problems_of("", without("accumulate"));
  EXPECT_HAS(
      gone.text(),
      "a.json:1:1  no schedule is given: add \"pipeline\": {\"type\": ..., \"params\": {...}}\n   installed: none");
  EXPECT_EQ(gone.list()[0].code, ErrorCode::plugin);
}

TEST(Sections, A_kind_that_must_be_there_and_has_no_default_is_asked_for) {
  Problems problems;
  select_plugins(parse_json("{}", "a.json"), kKinds, plugins(), "cpu", problems);
  EXPECT_EQ(problems.text(),
            "a.json:1:1  no model is given: add \"model\": {\"type\": ..., \"params\": {...}}\n   installed: gpt");
  EXPECT_EQ(problems.list()[0].code, ErrorCode::config);
  EXPECT_HAS(refusal("\"optimizer\": {\"lr\": 1}",
                     [] {
                       auto list = plugins();
                       for (KnownPlugin& p : list) p.is_default = p.is_default && p.kind != "optimizer";
                       return list;
                     }()),
             "optimizer needs a \"type\": no optimizer plugin is the default\n   installed: adamw");
}

TEST(Sections, Two_sections_for_one_place_are_refused_with_both_positions) {
  EXPECT_EQ(
      refusal("\"data_parallel\": \"ddp\",\n\"zero_optimization\": {\"stage\": 2}"),
      "a.json:4:22  zero_optimization and data_parallel (a.json:3:18) both choose the data_parallel (zero and ddp), "
      "and there is one place\n   keep one of them");
  EXPECT_EQ(names(select("\"data_parallel\": \"ddp\", \"zero_optimization\": {\"stage\": 0}"), "data_parallel"),
            "ddp -zero");
}

TEST(Sections, Two_plugins_that_claim_one_section_need_an_explicit_type) {
  auto list = plugins();
  list.push_back({"data_parallel", "fsdp", "zero_optimization", {}, false, ""});
  EXPECT_EQ(refusal(R"("zero_optimization": {"stage": 1})", list),
            "a.json:3:22  zero_optimization could mean data_parallel/zero or data_parallel/fsdp\n"
            "   say which: {\"type\": \"zero\", \"params\": {...}}");
  EXPECT_EQ(names(select(R"("zero_optimization": {"type": "fsdp"})", list), "data_parallel"), "fsdp");
}

TEST(Sections, Two_defaults_need_an_explicit_type) {
  auto list = plugins();
  list.push_back({"optimizer", "mine", "", {"AdamW"}, true, ""});
  EXPECT_HAS(refusal("", list), "more than one installed optimizer plugin says it is the default");
  EXPECT_EQ(names(select(R"("optimizer": "ADAM")", list), "optimizer"), "adamw");
  EXPECT_HAS(refusal(R"("optimizer": "AdamW")", list),
             "more than one plugin answers to type \"AdamW\"\n   use its own name:");
  EXPECT_EQ(names(select(R"("optimizer": "adamw")", list), "optimizer"), "adamw");
}

TEST(Sections, A_plugin_for_another_device_is_refused) {
  EXPECT_EQ(refusal(R"("communicator": "nccl")"),
            "a.json:3:17  communicator: communicator/nccl works on device \"cuda\", but this run has \"cpu\"");
}

TEST(Sections, A_list_is_an_order_of_preference_where_there_is_one_place) {
  const Selection s = one(R"("attention": [{"type": "flash", "params": {"x": 1}}, "standard"])", "attention");
  EXPECT_EQ(s.name, "flash");
  EXPECT_EQ(s.path, "attention[0].params");
  ASSERT_EQ(s.fallbacks.size(), 1u);
  EXPECT_EQ(s.fallbacks[0].name, "standard");
  const Problems skipped = problems_of(R"("communicator": ["nccl", "local"])");
  EXPECT_TRUE(skipped.empty());
  ASSERT_EQ(skipped.notes().size(), 1u);
  EXPECT_HAS(skipped.notes()[0].message, "communicator/nccl works on device");
  EXPECT_HAS(refusal(R"("attention": ["flash", "standar"])"),
             "attention[1]: no plugin attention/standar is installed\n   did you mean \"standard\"?");
  EXPECT_HAS(refusal(R"("attention": ["sparse", "standard"])"), "no plugin attention/sparse is installed");
  EXPECT_HAS(refusal(R"("attention": ["sparse", "strided"])"), "no plugin attention/strided is installed");
  EXPECT_HAS(refusal(R"("attention": [])"), "attention: the list names nothing");
}

TEST(Sections, A_list_is_all_of_these_where_there_is_room_and_defaults_join) {
  const auto s = select(R"("monitors": [{"type": "csv", "params": {"a": 1}}, {"type": "console", "enabled": false}])");
  EXPECT_EQ(names(s, "monitor"), "csv -console jsonl");
  EXPECT_EQ(names(select(R"("monitors": "jsonl")"), "monitor"), "jsonl console");
  EXPECT_EQ(names(select(R"("monitors": false)"), "monitor"), "");
  EXPECT_EQ(names(select(R"("csv_monitor": {"enabled": true})"), "monitor"), "csv console jsonl");
}

TEST(Sections, A_list_that_names_nothing_is_refused_by_its_key_where_there_is_room_for_many) {
  for (const std::string key : {"monitors", "strategy", "fused", "csv_monitor", "context_parallel"})
    for (const char* list : {"[]", "[null]", "[null, null]"})
      EXPECT_EQ(refusal(concat("\"", key, "\": ", list)),
                concat("a.json:3:", key.size() + 5, "  ", key,
                       ": the list names nothing\n   say what it is to hold, or leave the key out; false is for none"));
  EXPECT_EQ(names(select(R"("fused": [false])"), "strategy"), "-fused average") << "which says so";
  EXPECT_EQ(names(select(R"("fused": null)"), "strategy"), "fused average");
  EXPECT_HAS(refusal(R"("fused": [[]])"), "fused[0]: expected a type name or an object, found array");
  for (const char* nothing : {"3", "\"\""})
    EXPECT_HAS(refusal(concat("\"fused\": ", nothing)),
               "a.json:3:10  fused: expected a type name or an object, found ");
  EXPECT_HAS(refusal(R"("fused": {"type": ""})"), "fused.type: expected the name of a type, found string \"\"");
}

// Told once, at its place in the list, with what can stand there: the path of an entry is no key.
TEST(Sections, An_entry_of_a_list_that_is_no_section_is_one_problem) {
  for (const std::string key : {"attention", "optimizer", "bf16", "fused", "monitors"})
    for (const auto& [entry, found] :
         {std::pair("[]", "array"), std::pair("\"\"", "string \"\""), std::pair("3", "integer 3")})
      EXPECT_EQ(
          refusal(concat("\"", key, "\": [", entry, "]")),
          concat("a.json:3:", key.size() + 6, "  ", key, "[0]: expected a type name or an object, found ", found,
                 "\n   write \"NAME\" or {\"type\": NAME, \"params\": {...}} in this place of the list, or options ",
                 "without a list: \"", key, "\": {...}"));
  const std::string two = refusal(R"("attention": ["", "flash", []])");
  EXPECT_HAS(two, "attention[0]: expected a type name");
  EXPECT_HAS(two, "attention[2]: expected a type name");
  EXPECT_EQ(two.find("names nothing"), std::string::npos) << two;
}

TEST(Sections, A_section_of_its_own_switches_off_that_plugin_alone) {
  EXPECT_EQ(names(select(""), "strategy"), "fused average");
  for (const char* off : {R"("fused": false)", R"("fused": {"enabled": false})"})
    EXPECT_EQ(names(select(off), "strategy"), "-fused average") << off;
  EXPECT_EQ(names(select(R"("strategy": [{"type": "fused", "enabled": false}])"), "strategy"), "-fused average");
  EXPECT_EQ(names(select(R"("strategy": false)"), "strategy"), "");
  EXPECT_EQ(one(R"("fused": {"x": 1})", "strategy").path, "fused");
}

TEST(Sections, A_number_may_stand_for_a_section_of_one_option) {
  const Selection s = one(R"("sequence_parallel_size": 4)", "context_parallel");
  EXPECT_EQ(s.name, "heads");
  EXPECT_EQ(s.path, "sequence_parallel_size");
  EXPECT_EQ(s.params.to_json(), R"({"size":4})");
  EXPECT_EQ(names(select(R"("sequence_parallel_size": 1)"), "context_parallel"), "-heads");
  EXPECT_EQ(names(select(R"("sequence_parallel_size": 1)", without("heads")), "context_parallel"), "");
  EXPECT_HAS(refusal(R"("sequence_parallel_size": 2)", without("heads")), "no installed plugin reads this section");
}

TEST(Sections, A_number_is_the_size_of_tensor_parallelism) {
  const Selection s = one(R"("tensor_parallel": 2)", "tensor_parallel");
  EXPECT_EQ(s.name, "cut");
  EXPECT_EQ(s.path, "tensor_parallel");
  EXPECT_EQ(s.params.to_json(), R"({"size":2})");
  EXPECT_EQ(one(R"("tensor_parallel": {"size": 2})", "tensor_parallel").params.to_json(), R"({"size":2})");
  EXPECT_EQ(names(select(R"("tensor_parallel": false)"), "tensor_parallel"), "-cut");
  EXPECT_EQ(names(select(R"("tensor_parallel": "none")", without("cut")), "tensor_parallel"), "");
  EXPECT_EQ(refusal(R"("tensor_parallel": true)"),
            "a.json:3:20  tensor_parallel: expected a type name or an object, found boolean true\n"
            "   write \"tensor_parallel\": {\"type\": NAME, \"params\": {...}}, or a number, its \"size\"");
  EXPECT_HAS(refusal(R"("tensor_parallel": 2)", without("cut")), "no installed plugin reads this section");
}

TEST(Sections, Two_ways_to_share_out_a_sequence_stand_in_the_order_of_the_list) {
  const auto s = select(R"("context_parallel": [{"type": "heads", "params": {"size": 2}}, {"type": "chunks"}])");
  EXPECT_EQ(names(s, "context_parallel"), "heads chunks");
  EXPECT_EQ(names(select(R"("context_parallel": "none")"), "context_parallel"), "");
  EXPECT_HAS(refusal(R"("context_parallel": {"size": 2})"), "context_parallel needs a \"type\"");
}

}  // namespace
}  // namespace drivetrain
