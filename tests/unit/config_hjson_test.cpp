// Hjson as its page describes it and the package hjson 3.1.0 for Python reads it, and what a config that is no JSON is
// told.
#include "config/hjson.h"
#include "config/json_read.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

std::string read_as(const std::string& text) {
  Hjson hjson;
  Problem syntax;
  Problems problems;
  if (!read_hjson(text, "a", hjson, syntax, problems)) return concat(syntax.where.text(), " ", syntax.message);
  return hjson.value.to_json() + (problems.empty() ? "" : " " + problems.text());
}

TEST(Hjson, reads_what_the_page_shows) {
  EXPECT_EQ(read_as("{\n  // one\n  a: 1\n  b: 2.5e1 # two\n  /* three */ c: true\n}"), R"({"a":1,"b":25.0,"c":true})");
  EXPECT_EQ(read_as("{a: [1, 2\n 3]\n b: {c: null},}"), R"({"a":[1,2,3],"b":{"c":null}})");
  EXPECT_EQ(read_as("{'a': 'x \"y\"', \"b\": \"\\u00e9\\n\"}"), "{\"a\":\"x \\\"y\\\"\",\"b\":\"\u00e9\\n\"}");
  EXPECT_EQ(read_as("{a: '''one\ntwo'''}"), R"({"a":"one\ntwo"})");
  EXPECT_EQ(read_as("\xEF\xBB\xBF# no braces\r\na: 1\r\nb: {c: -3}\r\n"), R"({"a":1,"b":{"c":-3}})");
}

// Texts without quotation marks go on to the end of their line; numbers and words end at a mark.
TEST(Hjson, a_bare_text_has_the_whole_line) {
  EXPECT_EQ(read_as("{\n type: AdamW\n lr: 1e-3, n: 5}"), R"({"type":"AdamW","lr":0.001,"n":5})");
  EXPECT_EQ(read_as("{\n type: AdamW, # x\n b: true}"), R"({"type":"AdamW, # x","b":true})");
  EXPECT_EQ(read_as("{\n a: 5 apples\n b: true story\n c: 007x\n}"), R"({"a":"5 apples","b":"true story","c":"007x"})");
}

TEST(Hjson, mistakes_have_their_place) {
  EXPECT_EQ(read_as("{\n a: 1\n"), "a:3:1 the text ends inside an object; its closing } is missing");
  EXPECT_EQ(read_as("{a: 1}}"), "a:1:7 something follows the end of the object");
  EXPECT_EQ(read_as("{a b: 1}"), "a:1:4 a colon is missing behind \"a\"");
  EXPECT_EQ(read_as("{a: }"), "a:1:5 a value is wanted, found }");
  EXPECT_EQ(read_as("{a: \"x}"), "a:1:5 a text without its closing quotation mark");
  EXPECT_HAS(read_as("{a: 1, a: 2}"), "a:1:8  key \"a\" is given twice; the first is at a:1:2");
  EXPECT_HAS(read_as("{a: " + std::string(200, '[')), "nested deeper than 128 levels");
}

class RelaxedConfig : public ConfigFiles {
 protected:
  std::string read(const std::string& text) {
    notes_.clear();
    Problems problems;
    const std::string path = write("a.json", text);
    const std::string told = config_error_of([&] { value_ = read_config_file(path, problems); });
    for (const Problem& note : problems.notes()) notes_ += note.message + "\n";
    return told;
  }
  Value value_;
  std::string notes_;
};

TEST_F(RelaxedConfig, is_taken_with_a_note_where_DeepSpeed_takes_it) {
  EXPECT_EQ(read("{\n  \"a\": 1\n  \"b\": 2\n}\n"), "no error");
  EXPECT_EQ(value_.to_json(), R"({"a":1,"b":2})");
  EXPECT_HAS(notes_, "is read as Hjson");
  EXPECT_EQ(value_.find("b")->key_where.text(), (folder_ / "a.json").string() + ":3:3");
  EXPECT_EQ(read("{\"a\": 1}"), "no error");
  EXPECT_EQ(notes_, "");
}

TEST_F(RelaxedConfig, is_told_for_what_it_is) {
  EXPECT_HAS(read("{\n \"a\": True,\n \"b\": 1\n}"), "True is Python's\n   write true");
  EXPECT_HAS(read("{\n \"a\": SOME_SIZE,\n \"b\": 1\n}"),
             "a.json:2:7  this is a template: SOME_SIZE stands for a value");
  EXPECT_HAS(read("{\"a\": {{ x }}}"), "a.json:1:7  this is a template: {{ x }}");
  EXPECT_HAS(read("{\n \"a\": AdamW,\n \"b\": 1\n}"), "write \"AdamW\",");
  EXPECT_HAS(read("{\"a\": 1}\n---\n{\"a\": 2}"), "a.json:2:1  a second document begins here");
  EXPECT_HAS(read("eyJhIjogMSwgImIiOiAyfQ=="), "a config in base64");
  EXPECT_HAS(read(" \n"), "the file is empty");
  EXPECT_HAS(read("\"a\": 1\n}"), "the outer { is missing");
  EXPECT_HAS(read("{\n \"a\": NaN,\n \"b\": 1\n}"), "numbers must be finite");
  EXPECT_HAS(read("{\"a\": 1, \"a\": tru}"), "not valid JSON");
}

TEST_F(RelaxedConfig, base64_in_the_place_of_a_path_is_told_too) {
  Problems problems;
  EXPECT_HAS(config_error_of([&] { read_config_file("eyJhIjogMSwgImIiOiAyfQ==", problems); }), "base64 -d");
  EXPECT_HAS(config_error_of([&] { read_config_file("missing_file.json", problems); }), "cannot be opened");
}

}  // namespace
}  // namespace drivetrain
