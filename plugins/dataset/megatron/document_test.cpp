// The documents that dataset/megatron gives to datasets that arrange them.
#include <numeric>

#include "support/open_megatron.h"

namespace drivetrain::test {
namespace {

class DocumentsOfTokens : public ::testing::Test {
 protected:
  OpenMegatron open(const std::string& rest) const { return OpenMegatron(options_in(folder_, "{" + rest + "}")); }
  // Tokens and last label of each document, read in two pieces.
  static TokenDocuments all_of(const Documents& documents) {
    TokenDocuments all;
    for (int64_t i = 0; i < documents.count(); ++i) {
      const int64_t length = documents.length(i), half = length / 2;
      EXPECT_GE(length, 1);
      std::vector<int64_t> tokens(static_cast<size_t>(length)), labels(static_cast<size_t>(length));
      documents.read(i, 0, half, tokens.data(), labels.data());
      documents.read(i, half, length - half, tokens.data() + half, labels.data() + half);
      EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), labels.begin()));
      tokens.push_back(labels.back());
      all.push_back(std::move(tokens));
    }
    return all;
  }
  static TokenDocuments with_labels(TokenDocuments documents) {
    std::erase_if(documents, [](const auto& document) { return document.size() < 2; });
    return documents;
  }
  TempFolder folder_;
};

TEST_F(DocumentsOfTokens, come_in_file_order_but_for_those_without_a_label) {
  const TokenDocuments a = counted_documents(3000, 0, 12), b = counted_documents(20, 3, 30);
  write_token_pair(folder_.path("a"), a);
  write_token_pair(folder_.path("b"), b, 4);
  const OpenMegatron opened = open(R"("data_path": ["@/a", "@/b"], "split": "1,0,0", "seq_length": 4)");
  const Documents* const documents = opened.dataset->documents(DataPart::train);
  ASSERT_NE(documents, nullptr);
  TokenDocuments wanted = with_labels(a);
  wanted.insert(wanted.end(), b.begin(), b.end());
  EXPECT_EQ(all_of(*documents), wanted);
  EXPECT_EQ(documents->length(2500), static_cast<int64_t>(wanted[2500].size()) - 1) << "in any order";
  EXPECT_EQ(documents->length(3), static_cast<int64_t>(wanted[3].size()) - 1);
  EXPECT_EQ(opened.dataset->documents(DataPart::validation), nullptr);
}

TEST_F(DocumentsOfTokens, are_those_of_the_part_and_may_have_several_sequences) {
  const TokenDocuments sequences = counted_documents(40, 2, 6);
  write_token_pair(folder_.path("a"), sequences, 8, 4);
  const OpenMegatron opened = open(R"("data_path": "@/a", "split": "75,25", "seq_length": 4)");
  const auto joined = [&](size_t first, size_t end) {
    TokenDocuments documents;
    for (size_t i = first; i < end; ++i) {
      if (i == first || i % 4 == 0) documents.emplace_back();
      documents.back().insert(documents.back().end(), sequences[i].begin(), sequences[i].end());
    }
    return documents;
  };
  EXPECT_EQ(all_of(*opened.dataset->documents(DataPart::train)), joined(0, 30)) << "the split cuts the eighth";
  EXPECT_EQ(all_of(*opened.dataset->documents(DataPart::validation)), joined(30, 40));
}

TEST_F(DocumentsOfTokens, have_no_label_behind_their_end_if_it_is_masked) {
  write_token_pair(folder_.path("a"), {{1, 2, 9, 3, 9}, {4, 5, 9}});
  const OpenMegatron opened =
      open(R"("data_path": "@/a", "split": "1,0,0", "seq_length": 2, "eod": 9, "eod_mask_loss": true)");
  std::vector<int64_t> tokens(4), labels(4);
  opened.dataset->documents(DataPart::train)->read(0, 0, 4, tokens.data(), labels.data());
  EXPECT_EQ(tokens, (std::vector<int64_t>{1, 2, 9, 3}));
  EXPECT_EQ(labels, (std::vector<int64_t>{2, 9, -100, 9}));
}

TEST_F(DocumentsOfTokens, of_a_weighted_blend_are_refused) {
  write_token_pair(folder_.path("a"), counted_documents(30, 4, 9));
  const OpenMegatron opened = open(R"("data_path": [[1, "@/a"]], "split": "1,0,0", "seq_length": 4)");
  const std::string text = error_of([&] { opened.dataset->documents(DataPart::train); });
  EXPECT_NE(text.find("weights"), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
