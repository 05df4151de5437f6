// `drivetrain generate`: samples text from a run folder or a Hugging Face folder.
#include <algorithm>
#include <functional>
#include <iostream>

#include <drivetrain/toolkit/text/utf8.h>

#include "base/printable.h"
#include "device/open_device.h"
#include "generate/conversation.h"
#include "generate/decoder.h"
#include "generate/model_source.h"
#include "generate/sampling.h"
#include "generate/text_tokens.h"
#include "memory/cpu_allocator.h"
#include "rendezvous/rendezvous.h"
#include "shared/commands.h"
#include "train/start_device.h"

namespace drivetrain {
namespace {

// What samples are drawn with.
struct Sampler {
  const Inference& model;
  const ModelTexts& texts;
  const Sampling sampling;
  const int64_t most;

  // The token at `index` of the sample for prompt `number`. What a prompt gives depends on none of the others.
  int64_t draw(const at::Tensor& logits_V, int64_t index, int64_t number) const {
    return sample(logits_V.narrow(0, 0, texts.vocab_size()), sampling,
                  {model.seed(), static_cast<uint64_t>(index), hash_name("generate"), number, {}});
  }
};

struct Sample {
  std::vector<int64_t> tokens;  // without the one that ended it
  bool ended = false;           // by a token of the model
};

// `first`: the number of the first of these prompts. `each`: told of every token.
std::vector<Sample> grow(const Sampler& sampler, Decoder& decoder, std::vector<std::vector<int64_t>> prompts,
                         int64_t first, const std::function<void(size_t text, int64_t token)>& each = {}) {
  std::vector<Sample> samples(prompts.size());
  decoder.begin(std::move(prompts), sampler.most);
  for (int64_t index = 0; index < sampler.most && !decoder.growing().empty(); ++index) {
    const at::Tensor logits = decoder.logits();
    std::vector<std::optional<int64_t>> next;
    for (size_t b = 0; b < decoder.growing().size(); ++b) {
      const size_t text = decoder.growing()[b];
      const int64_t token = sampler.draw(logits[static_cast<int64_t>(b)], index, first + static_cast<int64_t>(text));
      samples[text].ended = sampler.texts.ends(token);
      next.push_back(samples[text].ended ? std::nullopt : std::optional(token));
      if (samples[text].ended) continue;
      samples[text].tokens.push_back(token);
      if (each) each(text, token);
    }
    decoder.add(next);
  }
  return samples;
}

void say(const std::string& text) { std::cout << text << std::flush; }

// One text, as it grows.
void stream_one(const Sampler& sampler, Decoder& decoder, const std::vector<int64_t>& prompt) {
  const auto stream = sampler.texts.stream(prompt);
  grow(sampler, decoder, {prompt}, 0, [&](size_t, int64_t token) { say(stream->add(token)); });
  say(stream->rest());
  std::cout << std::endl;
}

Value ids_value(const std::vector<int64_t>& tokens) {
  Value list = Value::array();
  for (const int64_t token : tokens) list.items().push_back(token);
  return list;
}

// One line of JSON per prompt, with OpenAI's words for why it ended.
Value line_of(const Prompt& prompt, const std::vector<int64_t>& tokens, const Sample& sample, const ModelTexts& texts) {
  Value line = Value::object();
  line.set(prompt.is_conversation() ? "messages" : "prompt", prompt.is_conversation() ? prompt.messages : prompt.given);
  if (const auto stream = texts.stream(tokens)) {
    std::string raw, text;
    for (const int64_t token : sample.tokens) raw += stream->add(token);
    append_replaced(raw + stream->rest(), text);
    line.set("completion", text);
  }
  line.set("tokens", ids_value(sample.tokens));
  line.set("finish_reason", sample.ended ? "stop" : "length");
  return line;
}

void write_batches(const Sampler& sampler, Decoder& decoder, const std::vector<Prompt>& prompts,
                   const std::vector<std::vector<int64_t>>& tokens, size_t batch) {
  for (size_t first = 0; first < prompts.size(); first += batch) {
    const size_t count = std::min(batch, prompts.size() - first);
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<Sample> samples =
        grow(sampler, decoder, {begin, begin + static_cast<std::ptrdiff_t>(count)}, static_cast<int64_t>(first));
    for (size_t i = 0; i < count; ++i)
      say(line_of(prompts[first + i], tokens[first + i], samples[i], sampler.texts).to_json() + "\n");
  }
}

std::vector<Prompt> prompts_of(const cli::Arguments& arguments) {
  const bool chat = arguments.has("--chat");
  std::vector<Prompt> prompts;
  if (arguments.has("--prompt"))
    prompts.push_back(prompt_of_text(arguments.text("--prompt"), "--prompt"));
  else
    prompts = read_prompts(arguments.text("--prompts"), chat);
  if (chat)
    for (Prompt& prompt : prompts) prompt = as_conversation(std::move(prompt));
  return prompts;
}

Sampling sampling_of(const cli::Arguments& arguments) {
  return {arguments.real("--temperature"), arguments.whole("--top-k", 0), arguments.real("--top-p")};
}

GrowingTexts growing_of(const std::vector<std::vector<int64_t>>& tokens, const cli::Arguments& arguments) {
  GrowingTexts texts;
  texts.rows = std::min(static_cast<int64_t>(tokens.size()), arguments.whole("--batch-size"));
  for (const auto& one : tokens) texts.prompt = std::max(texts.prompt, static_cast<int64_t>(one.size()));
  texts.most = arguments.whole("--tokens");
  return texts;
}

void open(const std::string& device) {
  open_device(device);  // before a plugin that needs its libraries
  install_cpu_allocator();
  start_device(device, 0, 1);
}

}  // namespace

int generate_command(const cli::Arguments& arguments) {
  const std::vector<Prompt> prompts = prompts_of(arguments);
  const InferenceSettings on{arguments.text("--device"), arguments.text("--dtype"), arguments.text("--attention", "")};
  if (!arguments.has("--plan")) open(on.device);
  const Registry registry(search_path({}, arguments.all("--plugin-path")));
  LogSettings settings = console_settings(0);
  settings.out = settings.err;  // stdout is for texts
  const auto log = make_console_log(settings);
  const std::string folder = readable_folder(arguments.plain().front(), *log);
  PreparedInference prepared = prepare_inference(folder, arguments.whole("--seed"), registry, log, on);
  const std::shared_ptr<Model> shape = prepared.run->plugins.model;
  const auto store = make_local_store();
  const Services services{*log, *store};
  const TokenizerReaders readers(registry, services);
  const ModelTexts texts(folder, arguments.text("--tokenizer", ""), *shape, readers);
  check_sampling(sampling_of(arguments), texts.vocab_size());
  const ConversationWriter conversations(
      folder, arguments.text("--tokenizer", ""),
      texts.tokenizer() ? texts.tokenizer()->facts.files : std::vector<std::string>(), arguments.has("--chat"),
      arguments.text("--template", ""));
  std::vector<std::vector<int64_t>> tokens;
  for (const Prompt& prompt : prompts)
    tokens.push_back(prompt.is_conversation() ? texts.tokens_of_written(conversations.write(prompt))
                                              : texts.tokens_of(prompt));
  if (!texts.tokenizer() && texts.stream({}))
    std::cerr << printable(folder) << " names no tokenizer: tokens are taken for bytes" << std::endl;
  const GrowingTexts growing = growing_of(tokens, arguments);
  const GenerationMemory planned = planned_generation(*prepared.run, growing);
  if (arguments.has("--plan")) {
    say(generation_memory_text(growing, planned));
    return 0;
  }
  Inference model(std::move(prepared), registry);
  const Sampler sampler{model, texts, sampling_of(arguments), arguments.whole("--tokens")};
  Decoder decoder(model, *log);
  if (arguments.has("--prompts")) {
    write_batches(sampler, decoder, prompts, tokens, static_cast<size_t>(arguments.whole("--batch-size")));
  } else {
    if (!arguments.has("--chat")) say(prompts.front().given.as_string());
    stream_one(sampler, decoder, tokens.front());
  }
  if (!std::cout) throw Error(ErrorCode::io, "cannot write the sample to standard output");
  if (arguments.has("--memory"))
    std::cerr << generation_memory_text(growing, planned, model.measured_memory(decoder.most_cache_bytes()));
  return 0;
}

}  // namespace drivetrain
