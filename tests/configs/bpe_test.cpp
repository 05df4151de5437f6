// configs/bpe/bpe.json on data that `data prepare` made, from the text to a sample.
#include <cmath>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Bpe : public ProgramTest {
 protected:
  // Lines of C++, so that the vocabulary of headers has whole words of them.
  std::string text() const {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += concat("namespace at {\nTORCH_API const Tensor& function_", i, "(const Tensor& self, int64_t dim);\n}\n");
    return text;
  }
};

TEST_F(Bpe, text_becomes_tokens_becomes_a_model_that_writes) {
  const std::string configs = DRIVETRAIN_SOURCE_DIR "/configs/", data = path("text");
  for (int i = 0; i < 20; ++i) write(concat("in/", i, ".h"), text());
  const Ran made =
      run("data prepare --input " + path("in") + " --tokenizer " + configs + "bpe --append-eod --output " + data);
  ASSERT_EQ(made.code, 0) << made.output;
  const Ran ran = run(
      "train " + configs + "bpe/bpe.json --set train_steps=2 --set eval_iters=1 --set output_dir=" + path("run") +
      " --set dataset.params.data_path=" + data + " --set eval.sets.held_out.params.source.params.data_path=" + data);
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::vector<Value> steps = read_metrics(path("run"));
  const double loss = steps.back().find("eval/held_out/loss")->as_double(),
               bits = steps.back().find("eval/held_out/bits_per_byte")->as_double();
  EXPECT_GT(bits, 0);
  EXPECT_LT(bits, loss / std::log(2.) / 2) << "a token is several bytes of such a text";
  const Ran sample = run("generate " + path("run") + " --prompt 'namespace at {' --tokens 4");
  EXPECT_EQ(sample.code, 0) << sample.output;
  expect_says(sample.output, {"namespace at {"});
}

}  // namespace
}  // namespace drivetrain::test
