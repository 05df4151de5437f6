#include <drivetrain/testkit/tokenizer/suite.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include <drivetrain/toolkit/text/utf8.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

using Ids = std::vector<int32_t>;
using TokenizerMaker = std::function<std::shared_ptr<Tokenizer>()>;  // opened

Ids ids_of(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::string text_of(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  tokenizer.decode(ids, text);
  return text;
}

std::string replaced(const std::string& text) {
  std::string made;
  append_replaced(text, made);
  return made;
}

bool is_utf8(const std::string& text) { return valid_utf8(text) == text.size(); }

void check_appends(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const Ids before = {3, 1, 2};
  for (const std::string& text : tokenizer_texts()) {
    Ids ids = before, wanted = before;
    const Ids alone = ids_of(*tokenizer, text);
    wanted.insert(wanted.end(), alone.begin(), alone.end());
    tokenizer->encode(text, ids);
    ASSERT_EQ(ids, wanted) << "encode appends to the ids that are there";
    std::string decoded = "before";
    tokenizer->decode(alone, decoded);
    ASSERT_EQ(decoded, "before" + text_of(*tokenizer, alone)) << "decode appends to the text that is there";
  }
}

void check_ids_are_of_the_vocabulary(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const int64_t end = tokenizer->facts().vocab_size;
  for (const std::string& text : tokenizer_texts())
    for (const int32_t id : ids_of(*tokenizer, text))
      ASSERT_TRUE(id >= 0 && id < end) << "id " << id << " of a vocabulary of " << end;
}

void check_texts_come_back(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const Lossless lossless = tokenizer->facts().lossless;
  for (const std::string& text : tokenizer_texts()) {
    const std::string decoded = text_of(*tokenizer, ids_of(*tokenizer, text));
    if (lossless == Lossless::bytes) {
      ASSERT_EQ(decoded, text) << "lossless for all bytes";
    }
    if (lossless == Lossless::utf8) {
      ASSERT_EQ(decoded, replaced(text)) << "lossless for UTF-8";
    }
  }
  if (lossless == Lossless::no) left_out("texts that come back", "TokenizerFacts::lossless is no");
}

void check_broken_text_is_replaced(const TokenizerMaker& make) {
  const auto tokenizer = make();
  if (tokenizer->facts().lossless == Lossless::bytes)
    return left_out("texts that are not UTF-8 as U+FFFD", "TokenizerFacts::lossless is bytes: all bytes come back");
  for (const std::string& text : tokenizer_texts())
    if (!is_utf8(text)) {
      ASSERT_EQ(ids_of(*tokenizer, text), ids_of(*tokenizer, replaced(text))) << "what is not UTF-8 counts as U+FFFD";
    }
}

void check_calls_are_alike(const TokenizerMaker& make) {
  const auto tokenizer = make(), other = make();
  std::vector<std::string> texts = tokenizer_texts();
  std::vector<Ids> first;
  for (const std::string& text : texts) first.push_back(ids_of(*tokenizer, text));
  for (size_t i = texts.size(); i-- > 0;) {
    ASSERT_EQ(ids_of(*tokenizer, texts[i]), first[i]) << "ids of a text, asked again";
    ASSERT_EQ(ids_of(*other, texts[i]), first[i]) << "ids of a text, of another object";
  }
}

void check_threads_do_not_matter(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const std::vector<std::string> texts = tokenizer_texts();
  std::vector<Ids> wanted;
  std::vector<std::string> decoded;
  for (const std::string& text : texts) {
    wanted.push_back(ids_of(*tokenizer, text));
    decoded.push_back(text_of(*tokenizer, wanted.back()));
  }
  constexpr size_t kThreads = 4;
  std::atomic<size_t> ready = 0, wrong = 0;
  const auto work = [&](size_t shift) {
    ++ready;
    while (ready < kThreads) std::this_thread::yield();
    for (size_t i = 0; i < 10 * texts.size() && wrong == 0; ++i) {
      const size_t at = (i + shift * 7) % texts.size();
      if (ids_of(*tokenizer, texts[at]) != wanted[at] || text_of(*tokenizer, wanted[at]) != decoded[at]) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u) << "ids and texts on " << kThreads << " threads at once";
}

void check_facts(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const TokenizerFacts facts = tokenizer->facts();
  EXPECT_GT(facts.vocab_size, 0);
  const auto check = [&](const std::optional<int32_t>& id, const char* what) {
    EXPECT_TRUE(!id || (*id >= 0 && *id < facts.vocab_size)) << what << " is " << *id << " of " << facts.vocab_size;
  };
  check(facts.bos, "bos"), check(facts.eos, "eos"), check(facts.pad, "pad"), check(facts.eod, "eod");
  for (const int32_t id : facts.prefix) check(id, "an id of the prefix");
  for (const std::string& file : facts.files)
    EXPECT_TRUE(std::filesystem::path(file).is_absolute() && std::filesystem::is_regular_file(file)) << file;
}

void check_unknown_ids_are_refused(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const int64_t end = tokenizer->facts().vocab_size;
  for (const int64_t id : {int64_t{-1}, end, end + 1000}) {
    bool refused = false;
    try {
      text_of(*tokenizer, {static_cast<int32_t>(id)});
    } catch (const Error& e) {
      refused = e.code() == ErrorCode::config;
    }
    EXPECT_TRUE(refused) << "decode takes the id " << id << ", which is none of " << end;
  }
}

void check_names(const TokenizerMaker& make) {
  const auto tokenizer = make();
  const int64_t end = tokenizer->facts().vocab_size;
  EXPECT_EQ(tokenizer->id_of("no tokenizer has a token of this name \x01"), std::nullopt);
  std::set<int32_t> ids;
  for (const std::string& text : tokenizer_texts())
    for (const int32_t id : ids_of(*tokenizer, text)) ids.insert(id);
  for (const int32_t id : ids) {
    const auto found = tokenizer->id_of(text_of(*tokenizer, {id}));
    EXPECT_TRUE(!found || (*found >= 0 && *found < end)) << "id_of gives " << *found << " of " << end;
  }
}

using TokenizerCheck = void (*)(const TokenizerMaker&);
constexpr std::pair<const char*, TokenizerCheck> kTokenizerChecks[] = {
    {"appends", check_appends},
    {"ids_are_below_the_size_of_the_vocabulary", check_ids_are_of_the_vocabulary},
    {"lossless_texts_come_back", check_texts_come_back},
    {"broken_texts_count_as_replaced", check_broken_text_is_replaced},
    {"every_call_gives_the_same_ids", check_calls_are_alike},
    {"threads_do_not_matter", check_threads_do_not_matter},
    {"facts_are_of_the_vocabulary", check_facts},
    {"unknown_ids_are_refused", check_unknown_ids_are_refused},
    {"names_are_those_of_tokens", check_names},
};

// On an object that is not opened.
void check_recognizes(const Subject& subject) {
  const Host host;
  const auto tokenizer =
      installed_plugins().make<Tokenizer>(subject.kind, subject.name, subject.options, host.services);
  const TempFolder folder;
  EXPECT_EQ(tokenizer->recognizes(folder.path()), "") << "an empty folder";
  EXPECT_EQ(tokenizer->recognizes(folder / "none"), "") << "a folder that is not there";
  std::ofstream(folder / "config.json") << "{}";
  std::ofstream(folder / "model.safetensors") << "12345678";
  EXPECT_EQ(tokenizer->recognizes(folder.path()), "") << "a folder with a model alone";
}

}  // namespace

std::vector<std::string> tokenizer_texts() {
  constexpr std::string_view kTexts[] = {"",
                                         " ",
                                         "a",
                                         "\n",
                                         "Hello, world! It's 12345 o'clock; WE'LL see.",
                                         "naïve café e\u0301",
                                         "日本語のテキストと中文",
                                         "привет мир \t\r\n  x",
                                         "مرحبا हिन्दी 한국어 ไทย",
                                         "😀👩‍👩‍👧‍👦🏳️‍🌈 ❤️",
                                         "for (int i = 0; i < n; ++i) {\n\t\tx[i] += 3.14e-5;\n}\n",
                                         "<|endoftext|></s><s>[INST]",
                                         "a\x80 b\xff\xfe c\xe4\xb8 d\xf0\x9f\x98",
                                         "\xed\xa0\x80 \xc0\xaf",
                                         "tail \xe2\x82"};
  std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
  texts.emplace_back(300, 'a');
  texts.emplace_back(300, ' ');
  texts.push_back(std::string(1, '\0') + "zero");
  std::string all;
  for (const std::string& text : texts) all += text;
  texts.push_back(all);
  return texts;
}

Suite tokenizer_suite() {
  Suite suite;
  for (const auto& [name, check] : kTokenizerChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       const Host host;
                       check([&] {
                         auto made = installed_plugins().make<Tokenizer>(subject.kind, subject.name, subject.options,
                                                                         host.services);
                         made->open("");
                         return made;
                       });
                     }});
  suite.push_back({"recognizes_nothing_else", check_recognizes});
  return suite;
}

}  // namespace drivetrain::test
