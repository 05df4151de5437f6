// `data prepare`: what stands in the files, whatever the threads and however often it was stopped; inputs that are not
// as they should be.
#include <thread>

#include "data_tools_fixture.h"
#include "support/waiting.h"

namespace drivetrain::test {
namespace {

using DataPrepare = DataTools;

// Lines enough for several blocks.
std::string many_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += concat(R"({"id": )", i, R"(, "text": "document )", i, std::string(static_cast<size_t>(i * 7 % 300), 'x'),
                    "\"}\n");
  return lines;
}

TEST_F(DataPrepare, documents_are_in_the_order_of_the_inputs) {
  const std::string lines = write("b.jsonl",
                                  "{\"text\": \"one\"}\n\n{\"meta\": {\"text\": 1}, \"text\": "
                                  "\"two\\n\\u00e9\"}\r\n{\"text\": \"\"}\n{\"text\":\"end\"}");
  write("texts/z.txt", "last"), write("texts/a/x.txt", "first"), write("texts/empty.txt", "");
  PrepareRequest wanted = request("out/data", {lines, folder_ / "texts", folder_ / "texts/*.txt"});
  wanted.append_eod = true, wanted.eod = 0;
  const PrepareResult result = prepare(wanted, tokenizer(), host_.log);
  EXPECT_EQ(result.documents, 5u);
  EXPECT_EQ(result.empty, 1u) << "a line; an empty file holds nothing at all";
  const TokenFile file(folder_ / "out/data");
  const std::string end(1, '\0');
  EXPECT_EQ(texts_of(file),
            (std::vector<std::string>{"one" + end, "two\n\xc3\xa9" + end, "end" + end, "first" + end, "last" + end}));
  EXPECT_EQ(file.problems(), std::vector<std::string>{});
  EXPECT_EQ(result.tokens, file.tokens());
}

TEST_F(DataPrepare, the_index_is_the_one_of_Megatron) {
  prepare(request("small", {write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n")}), tokenizer(), host_.log);
  EXPECT_EQ(folder_.text("small.bin"), std::string("a\0b\0c\0", 6));
  const std::string idx = folder_.text("small.idx");
  const std::string wanted = std::string("MMIDIDX\0\0", 9) + std::string("\1\0\0\0\0\0\0\0", 8) + '\x08' +
                             std::string("\2\0\0\0\0\0\0\0", 8) + std::string("\3\0\0\0\0\0\0\0", 8) +
                             std::string("\2\0\0\0\1\0\0\0", 8) + std::string("\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16) +
                             std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 24);
  EXPECT_EQ(idx, wanted);
}

TEST_F(DataPrepare, a_large_vocabulary_takes_four_bytes) {
  const std::string input = write("a.txt", "ab");
  EXPECT_EQ(prepare(request("a", {input}), tokenizer(65499, 65000), host_.log).type, "uint16");
  EXPECT_EQ(prepare(request("b", {input}), tokenizer(65500, 65000), host_.log).type, "int32");
  EXPECT_EQ(TokenFile(folder_ / "a").document(0), (std::vector<int64_t>{65097, 65098}));
  EXPECT_EQ(TokenFile(folder_ / "b").document(0), (std::vector<int64_t>{65097, 65098}));
}

TEST_F(DataPrepare, threads_and_stops_leave_the_bytes_alone) {
  const std::vector<std::string> inputs = {write("a.jsonl", many_lines(9000)), write("b.txt", "between"),
                                           write("c.jsonl", many_lines(4000))};
  PrepareRequest whole = request("whole", inputs);
  whole.threads = 1;
  prepare(whole, tokenizer(), host_.log);
  EXPECT_EQ(TokenFile(folder_ / "whole").documents(), 13001u);
  int stops = 0;
  uint64_t skipped = 0;
  for (const int64_t calls : {int64_t{0}, int64_t{5000}, int64_t{5000}, int64_t{6000}, int64_t{-1}}) {
    const auto opened = tokenizer(256, 0, calls);
    PrepareRequest stopped = request("stopped", inputs);
    if (calls == 6000) stopped.threads = 1;  // two blocks are written for certain; several threads may stop amid all
    try {
      skipped = prepare(stopped, opened, host_.log).skipped_bytes;
    } catch (const Error&) {
      ++stops;
      EXPECT_FALSE(std::filesystem::exists(folder_ / "stopped.idx")) << "files under their names are complete";
    }
  }
  EXPECT_EQ(stops, 4);
  EXPECT_GT(skipped, 1'000'000u) << "what was done before the stops is not done again";
  EXPECT_EQ(both("stopped"), both("whole"));
  EXPECT_EQ(folder_.entries(), 7u) << "nothing but inputs and outputs is left";
}

TEST_F(DataPrepare, goes_on_where_only_a_name_was_missing) {
  const std::string input = write("a.jsonl", many_lines(10));
  prepare(request("whole", {input}), tokenizer(), host_.log);
  const auto made = std::make_shared<InTheWay>(folder_ / "c.idx");
  const std::string refusal = error_of([&] {
    prepare(request("c", {input}), {"tokenizer/shifted", made, made->facts()}, host_.log);
  });
  EXPECT_NE(refusal.find("c.idx"), std::string::npos) << refusal;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "c.bin"));
  std::filesystem::remove_all(folder_ / "c.idx");
  prepare(request("c", {input}), tokenizer(256, 0, 0), host_.log);  // nothing is encoded again
  EXPECT_EQ(both("c"), both("whole"));
  EXPECT_EQ(folder_.entries(), 5u);
}

TEST_F(DataPrepare, a_broken_line_is_an_error_or_counted) {
  const std::string good = "{\"text\": \"good\"}\n";
  const std::pair<const char*, const char*> lines[] = {
      {"{\"text\": \"cut", "not valid JSON"},    {"{\"other\": 1}", "has no \"text\""},
      {"{\"text\": 7}", "\"text\" is no text"},  {"[1]", "no JSON object"},
      {"{\"text\": \"a\"} b", "not valid JSON"}, {"{\"text\": \"a\", \"text\": \"b\"}", "given twice"}};
  for (const auto& [line, says] : lines) {
    SCOPED_TRACE(line);
    std::filesystem::remove(folder_ / "data.bin"), std::filesystem::remove(folder_ / "data.idx");
    const std::string input = write("a.jsonl", good + good + line + "\n" + good);
    PrepareRequest wanted = request("data", {input});
    const std::string refusal = error_of([&] { prepare(wanted, tokenizer(), host_.log); });
    EXPECT_NE(refusal.find(input + ":3: "), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(says), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("--skip-broken"), std::string::npos) << refusal;
    wanted.skip_broken = true;
    const PrepareResult result = prepare(wanted, tokenizer(), host_.log);
    EXPECT_EQ(result.broken, 1u);
    EXPECT_EQ(result.documents, 3u);
  }
}

TEST_F(DataPrepare, keys_that_are_not_used_may_be_anything_and_a_path_leads_to_the_text) {
  PrepareRequest wanted = request("odd", {write("odd.jsonl",
                                                "\xef\xbb\xbf{\"n\": NaN, \"text\": \"a\"}\r\n"
                                                "{\"n\": 1e999, \"n\": [{\"x\": 18446744073709551616}], "
                                                "\"text\": \"b\"}\n{\"h\": \"\\ud800\", \"text\": \"c\"}")});
  EXPECT_EQ(prepare(wanted, tokenizer(), host_.log).documents, 3u);
  EXPECT_EQ(texts_of(TokenFile(folder_ / "odd")), (std::vector<std::string>{"a", "b", "c"}));
  wanted = request("deep", {write("deep.jsonl", "{\"a\": {\"b\": \"x\"}}\n{\"a\": {\"b\": \"y\", \"c\": 1}}\n")});
  wanted.json_key = "a.b", wanted.json_key_given = true;
  prepare(wanted, tokenizer(), host_.log);
  EXPECT_EQ(texts_of(TokenFile(folder_ / "deep")), (std::vector<std::string>{"x", "y"}));
}

TEST_F(DataPrepare, every_document_begins_with_what_the_request_says) {
  PrepareRequest wanted =
      request("begun", {write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\"}\n{\"text\": \"b\"}\n")});
  wanted.begin = {'<', '>'}, wanted.append_eod = true, wanted.eod = '.';
  const PrepareResult result = prepare(wanted, tokenizer(), host_.log);
  EXPECT_EQ(result.empty, 1u) << "a begin alone is no document";
  EXPECT_EQ(texts_of(TokenFile(folder_ / "begun")), (std::vector<std::string>{"<>a.", "<>b."}));
}

TEST_F(DataPrepare, finished_files_and_other_preparations_are_not_overwritten) {
  const std::string input = write("a.jsonl", many_lines(2000));
  const auto refusal = [&](const PrepareRequest& wanted, const OpenedTokenizer& opened) {
    return error_of([&] { prepare(wanted, opened, host_.log); });
  };
  prepare(request("done", {input}), tokenizer(), host_.log);
  EXPECT_NE(refusal(request("done", {input}), tokenizer()).find("done.bin is there already"), std::string::npos);
  const std::string much = write("much.jsonl", many_lines(9000));
  PrepareRequest cut = request("cut", {much});
  cut.threads = 1;
  EXPECT_NE(refusal(cut, tokenizer(256, 0, 8900)), "");
  ASSERT_TRUE(std::filesystem::exists(folder_ / "cut.progress.json"));
  PrepareRequest other = request("cut", {much});
  other.append_eod = true;
  EXPECT_NE(refusal(other, tokenizer()).find("eod is 0"), std::string::npos) << refusal(other, tokenizer());
  EXPECT_NE(refusal(request("cut", {write("b.txt", "b")}), tokenizer()).find("inputs is"), std::string::npos);
  EXPECT_NE(refusal(request("cut", {much}), tokenizer(70000)).find("type is"), std::string::npos);
}

TEST_F(DataPrepare, inputs_that_are_not_there_are_named) {
  const auto refusal = [&](const std::string& input) {
    return error_of([&] { prepare(request("x", {input}), tokenizer(), host_.log); });
  };
  EXPECT_NE(refusal(folder_ / "none*").find("there is no such file"), std::string::npos);
  EXPECT_NE(refusal(write("a.jsonl.xz", "x")).find(".xz"), std::string::npos);
  EXPECT_NE(refusal(write("a.parquet", "x")).find("`tools/table_to_jsonl "), std::string::npos);
  EXPECT_NE(refusal(write("empty.txt", "")).find("no document"), std::string::npos);
  const std::string bad = write("c.txt", "c");
  EXPECT_NE(error_of([&] { prepare(request("y", {bad}), tokenizer(99, 50), host_.log); }).find("the id 149"),
            std::string::npos);
}

// The progress of a finished preparation that lacks nothing but names, which a person or a disk has changed.
TEST_F(DataPrepare, a_progress_file_that_is_not_true_is_refused) {
  const std::string input = write("a.jsonl", many_lines(9000));
  const auto stopped = [&](const std::string& part, const std::string& other) {
    for (const char* end : {".bin.part", ".lengths.part", ".progress.json"})
      std::filesystem::remove(folder_ / ("c" + std::string(end)));
    PrepareRequest wanted = request("c", {input});
    wanted.threads = 1;
    EXPECT_EQ(error_of([&] { prepare(wanted, tokenizer(256, 0, 8900), host_.log); }), "stopped");
    std::string text = folder_.text("c.progress.json");
    const size_t at = text.find("\n  \"" + part + "\": ");
    ASSERT_NE(at, std::string::npos) << text;
    write("c.progress.json", text.replace(at, text.find('\n', at + 1) - at, "\n  \"" + part + "\": " + other + ","));
  };
  const auto refused = [&](const std::string& part, const std::string& other) {
    stopped(part, other);
    const std::string refusal = error_of([&] { prepare(request("c", {input}), tokenizer(), host_.log); });
    for (const std::string& says :
         {std::string("c.progress.json"), "\"" + part + "\" is " + other, std::string("remove it")})
      EXPECT_NE(refusal.find(says), std::string::npos) << says << "\nin: " << refusal;
  };
  refused("file", "99");
  refused("offset", "100000000");
  refused("line", "100000000");
  refused("documents", "100000000");
  refused("tokens", "4611686018427387904");
  refused("version", "2");
}

TEST_F(DataPrepare, a_finished_preparation_whose_files_are_gone_is_an_error) {
  const std::string input = write("a.jsonl", many_lines(10));
  const auto made = std::make_shared<InTheWay>(folder_ / "c.bin");  // both names are missing
  EXPECT_NE(error_of([&] {
              prepare(request("c", {input}), {"tokenizer/shifted", made, made->facts()}, host_.log);
            }),
            "");
  std::filesystem::remove_all(folder_ / "c.bin");
  std::filesystem::remove(folder_ / "c.idx.part");
  const auto again = [&] { return error_of([&] { prepare(request("c", {input}), tokenizer(), host_.log); }); };
  for (const char* says : {"c.idx: is not there", "c.progress.json says", "remove ", "c.bin.part"})
    EXPECT_NE(again().find(says), std::string::npos) << says << "\nin: " << again();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "c.bin.part")) << "nothing has changed";
  std::filesystem::remove(folder_ / "c.bin.part");
  EXPECT_NE(again().find("c.bin: is not there"), std::string::npos) << again();
  std::filesystem::remove(folder_ / "c.progress.json");
  EXPECT_EQ(again(), "");
  EXPECT_EQ(TokenFile(folder_ / "c").documents(), 10u);
}

// How many bytes are encoded at the same time.
struct Crowded : Shifted {
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    const uint64_t now = inside += text.size();
    for (uint64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    test::let_pass(0.005);  // Waits: the others come in, if they may
    Shifted::encode(text, ids);
    inside -= text.size();
  }
  mutable std::atomic<uint64_t> inside = 0, most = 0;
};

TEST_F(DataPrepare, the_texts_in_memory_are_bounded_in_bytes) {
  for (int i = 0; i < 12; ++i)
    write(concat("texts/", 10 + i, ".txt"), std::string(i == 5 ? 5000 : 1000, static_cast<char>('a' + i)));
  prepare(request("free", {folder_ / "texts"}), tokenizer(), host_.log);
  const auto crowded = std::make_shared<Crowded>();
  PrepareRequest wanted = request("bounded", {folder_ / "texts"});
  wanted.threads = 8, wanted.bytes_in_flight = 2000;
  prepare(wanted, {"tokenizer/shifted", crowded, crowded->facts()}, host_.log);
  EXPECT_LE(crowded->most, 5000u) << "the one that is larger than the bound goes alone";
  EXPECT_EQ(both("bounded"), both("free"));
}

TEST_F(DataPrepare, a_line_may_be_longer_than_many_blocks) {
  const std::string text(3'000'000, 'y');
  const std::string input = write("a.jsonl", many_lines(1000) + "{\"text\": \"" + text + "\"}\n" + many_lines(2));
  prepare(request("long", {input}), tokenizer(), host_.log);
  const std::vector<std::string> texts = texts_of(TokenFile(folder_ / "long"));
  ASSERT_EQ(texts.size(), 1003u);
  EXPECT_TRUE(texts[1000] == text);
  EXPECT_EQ(texts[1002], "document 1xxxxxxx");
}

}  // namespace
}  // namespace drivetrain::test
