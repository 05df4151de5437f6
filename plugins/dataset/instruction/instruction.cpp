// Conversations of JSONL files, written as texts by a template and encoded by a tokenizer. Labels are the responses
// only. By itself: one conversation per row; under dataset/packed: its documents.
#include <drivetrain/dataset.h>
#include <drivetrain/log.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

#include <ATen/ops/empty.h>

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "conversations.h"
#include "encoder_choice.h"
#include "mixture.h"
#include "spoken.h"

namespace {

using namespace drivetrain;
using instruction::Conversations;
using instruction::Figures;
using instruction::TooLong;

constexpr int64_t kIgnored = -100;

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// The share of lines with a smaller hash.
double rank_of(uint64_t line_hash) { return philox({low(line_hash), high(line_hash), 0, 0}, {0, 0})[0] * 0x1p-32; }

class Instruction : public Dataset {
 public:
  struct Options {
    std::vector<std::string> files, validation_files;
    double validation_fraction = 0;
    PluginChoice tokenizer;
    int64_t seq_length = 0;
    std::optional<int64_t> max_length;
    std::string too_long = "refuse";
    Value chat_template;
    std::string template_file, template_name;
    Value template_options;
    std::vector<double> weights;
    std::vector<std::string> roles_to_train = {"assistant"};
    instruction::FieldNames names;
    Value role_names;
    int64_t pad_token = 0;
    std::optional<int64_t> seed;
    std::string unknown_keys = "say";
    std::vector<std::string> ignored_keys;

    std::string messages = names.messages, role = names.role, content = names.content, prompt = names.prompt,
                response = names.response;
  };
  static OptionTable options() {
    return table<Options>()
        .field("files", &Options::files, "JSONL files, one conversation per line")
        .required()
        .path()
        .field("weights", &Options::weights,
               "shares of the rows for training, one per file; default: every conversation once per epoch")
        .range(0, 1e9)
        .field("validation_files", &Options::validation_files, "JSONL files that are held out")
        .path()
        .field("validation_fraction", &Options::validation_fraction,
               "share of the lines of files that is held out, by a hash of the line")
        .range(0, 1)
        .field("tokenizer", &Options::tokenizer, "what encodes the texts")
        .required()
        .plugin(Tokenizer::kKind)
        .field("seq_length", &Options::seq_length, "positions per row")
        .required()
        .range(1, 1 << 30)
        .field("max_length", &Options::max_length, "positions of a conversation; default: seq_length")
        .at_least(1)
        .field("too_long", &Options::too_long, "what is done with a longer conversation")
        .one_of({"refuse", "cut", "drop"})
        .field("template", &Options::chat_template,
               "\"tokenizer\": its own chat template; \"chatml\"; or texts around messages, by role (README); default: "
               "ChatML")
        .field("template_file", &Options::template_file, "a chat template in Jinja, or a folder with one")
        .path()
        .field("template_name", &Options::template_name,
               "which of several templates; default: \"tool_use\" for conversations with tools, else \"default\"")
        .field("template_options", &Options::template_options,
               "variables of a template in Jinja: {\"enable_thinking\": false}")
        .field("roles_to_train", &Options::roles_to_train, "roles whose messages are labels")
        .field("messages_field", &Options::messages, "key of the list of messages")
        .field("role_field", &Options::role, "key of a message's role")
        .field("content_field", &Options::content, "key of a message's text")
        .field("prompt_field", &Options::prompt, "key of the prompt, in a line without messages")
        .field("response_field", &Options::response, "key of the response, in a line without messages")
        .field("role_names", &Options::role_names, "other names of roles: {\"human\": \"user\"}")
        .field("unknown_keys", &Options::unknown_keys,
               "what is done about keys of the lines that are not read: say which at the start, or refuse them")
        .one_of({"say", "refuse"})
        .field("ignored_keys", &Options::ignored_keys, "keys that are passed over without a word, such as \"id\"")
        .field("pad_token", &Options::pad_token, "the token behind a conversation")
        .at_least(0)
        .field("seed", &Options::seed, "of the order; default: the run's")
        .finish([](Options& o) { finish(o); });
  }

  Instruction(const Options& options, const Services& services)
      : options_(options),
        services_(services),
        seed_(options.seed ? static_cast<uint64_t>(*options.seed) : services.seed) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override {
    batch_rows_ = run.train_batch_size;
    make_encoder(model);
    instruction::FieldNames names = options_.names;
    names.template_reads = [this](const std::string& key) { return encoder_->reads(key); };
    const instruction::Reading reading{names, *options_.max_length, too_long(), options_.unknown_keys == "refuse"};
    train_ = std::make_unique<Conversations>(*encoder_, reading);
    validation_ = std::make_unique<Conversations>(*encoder_, reading);
    const auto is_held_out = [this](uint64_t hash) { return rank_of(hash) < options_.validation_fraction; };
    std::vector<int64_t> counts;
    for (const std::string& file : options_.files) {
      const int64_t before = train_->count();
      train_->load(file, services_.log, is_held_out, validation_.get());
      counts.push_back(train_->count() - before);
    }
    for (const std::string& file : options_.validation_files) validation_->load(file, services_.log);
    check_sets();
    mix(counts);
    tell("", *train_), tell(" for validation", *validation_);
    for (const Conversations* set : {train_.get(), validation_.get()})
      instruction::say_unread_keys(set->figures(), options_.names, services_.log);
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    facts.validation = validation_->count() > 0;
    facts.begin_tokens = encoder_->begin(), facts.end_tokens = encoder_->ends();
    facts.notes = Value::object();
    facts.notes.set("train", train_->notes());
    facts.notes.set("validation", validation_->notes());
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const Conversations& set = request.part == DataPart::train ? *train_ : *validation_;
    if (set.count() == 0)
      throw fail(ErrorCode::config,
                 "dataset/instruction: there are no conversations for validation. Set "
                 "validation_files or validation_fraction, or eval_interval to 0");
    const int64_t S = options_.seq_length;
    batch.tokens_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    batch.labels_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    int64_t *tokens = batch.tokens_BS.mutable_data_ptr<int64_t>(),
            *labels = batch.labels_BS.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < request.rows; ++i, tokens += S, labels += S) {
      const int64_t row = (request.step - 1) * batch_rows_ + request.first_row + i;
      const int64_t conversation = at_row(request.part, row, set.count()), length = set.length(conversation);
      set.read(conversation, 0, length, tokens, labels);
      std::fill(tokens + length, tokens + S, options_.pad_token);
      std::fill(labels + length, labels + S, kIgnored);
      batch.padding += S - length;
    }
    batch.documents = request.rows;
    if (request.part == DataPart::train) tell_epoch(request.step);
  }

  std::string origin(const BatchRequest& request) override {
    const Conversations& set = request.part == DataPart::train ? *train_ : *validation_;
    const int64_t row = (request.step - 1) * batch_rows_ + request.first_row;
    return set.origin(at_row(request.part, row, set.count()));
  }

  const Documents* documents(DataPart part) const override {
    if (part == DataPart::train && mixed_) return mixed_.get();
    const Conversations* set = part == DataPart::train ? train_.get() : validation_.get();
    return set && set->count() > 0 ? set : nullptr;
  }

 private:
  static void finish(Options& o) {
    const auto refuse = [](const std::string& text) { throw fail(ErrorCode::config, text); };
    if (o.files.empty()) refuse("files is empty; name JSONL files");
    if (!o.weights.empty() && o.weights.size() != o.files.size())
      refuse(
          concat("weights has ", o.weights.size(), " numbers, files ", o.files.size(), " names; wanted one per file"));
    if (!o.weights.empty() && *std::max_element(o.weights.begin(), o.weights.end()) <= 0)
      refuse("every weight is 0; wanted one above");
    instruction::is_jinja(choice_of(o));
    if (!o.validation_files.empty() && o.validation_fraction > 0)
      refuse("validation_files and validation_fraction exclude each other");
    if (!o.max_length) o.max_length = o.seq_length;
    if (*o.max_length > o.seq_length)
      refuse(concat("max_length ", *o.max_length, " is more than seq_length ", o.seq_length));
    o.names = {o.messages, o.role, o.content, o.prompt, o.response, {}, {}, {}};
    o.names.ignored = {o.ignored_keys.begin(), o.ignored_keys.end()};
    if (!o.role_names.is_null())
      for (const auto& [name, role] : o.role_names.members()) o.names.roles[name] = role.as_string();
  }

  TooLong too_long() const {
    return options_.too_long == "refuse" ? TooLong::refuse : options_.too_long == "cut" ? TooLong::cut : TooLong::drop;
  }

  void make_encoder(const ModelFacts& model) {
    if (!services_.plugins)
      throw fail(ErrorCode::internal, "dataset/instruction: there is no registry to make a tokenizer of");
    tokenizer_ = services_.plugins->create<Tokenizer>(options_.tokenizer);
    tokenizer_->open("");
    const int64_t tokens = tokenizer_->facts().vocab_size;
    if (tokens > model.vocab_size)
      throw fail(ErrorCode::config, "dataset/instruction: tokenizer/", options_.tokenizer.type, " has ", tokens,
                 " tokens, the model's vocab_size is ", model.vocab_size,
                 ". Use the model's tokenizer, or set model.params.vocab_size to ", tokens, " or more");
    if (options_.pad_token >= model.vocab_size)
      throw fail(ErrorCode::config, "dataset/instruction: pad_token is ", options_.pad_token,
                 ", the model's tokens are 0 to ", model.vocab_size - 1, ". Set pad_token to one of them");
    encoder_ = instruction::make_encoder(*tokenizer_, options_.tokenizer.type, choice_of(options_), services_.log);
  }

  static instruction::TemplateChoice choice_of(const Options& o) {
    return {o.chat_template,
            o.template_file,
            o.template_name,
            o.template_options,
            {o.roles_to_train.begin(), o.roles_to_train.end()}};
  }

  void mix(const std::vector<int64_t>& counts) {
    mixture_.emplace(counts, options_.weights);
    if (options_.weights.empty()) return;
    mixed_ = std::make_unique<instruction::MixedDocuments>(*train_, *mixture_, site(DataPart::train));
    for (size_t i = 0; i < counts.size(); ++i)
      services_.log.info(concat("dataset/instruction: ", mixture_->rows_of(i), " of ", mixture_->rows(),
                                " rows of an epoch are of the ", counts[i], " conversations of ", options_.files[i]));
  }

  // A set without a conversation has no label that counts: what it trains or evaluates would be nothing.
  void check_sets() const {
    const auto check = [&](const Conversations& set, const char* option, const std::vector<std::string>& files) {
      if (set.count() > 0) return;
      const int64_t dropped = set.figures().dropped;
      throw fail(ErrorCode::io, "dataset/instruction: nothing is learned from ", option, " (", join(files, ", "), "): ",
                 dropped == 0
                     ? "there is no conversation in it\n   name files with conversations"
                     : concat("its ", dropped, " conversations are longer than max_length ", *options_.max_length,
                              ", and were dropped, or cut to nothing that is learned\n   set max_length and ",
                              "seq_length to more, or name files with shorter conversations"));
    };
    const bool splits = options_.validation_fraction > 0;
    check(*train_, splits ? "what validation_fraction leaves of files" : "files", options_.files);
    if (!options_.validation_files.empty()) check(*validation_, "validation_files", options_.validation_files);
    if (splits && validation_->figures().dropped > 0)
      check(*validation_, "validation_fraction of files", options_.files);
  }

  uint64_t site(DataPart part) const {
    return seed_ ^ hash_name(part == DataPart::train ? "instruction" : "instruction: validation");
  }

  // Every conversation once before the first comes again, in another order; files by their weights.
  int64_t at_row(DataPart part, int64_t row, int64_t count) const {
    if (part == DataPart::train) return mixture_->at(row, site(part));
    return instruction::Mixture({count}, {}).at(row, site(part));
  }

  void tell_epoch(int64_t step) {
    const int64_t epoch = (step * batch_rows_ - 1) / train_->count();
    if (epoch > epoch_) services_.log.info(concat("dataset/instruction: step ", step, " reaches epoch ", epoch + 1));
    epoch_ = std::max(epoch_, epoch);
  }

  void tell(const char* what_for, const Conversations& set) const {
    const Figures& f = set.figures();
    if (f.conversations == 0 && f.dropped == 0) return;
    std::string line = concat("dataset/instruction: ", f.conversations, " conversations", what_for, ", ", f.positions,
                              " tokens, ", f.learned, " of them learned");
    if (f.cut > 0) line += concat("; ", f.cut, " cut to ", *options_.max_length);
    if (f.dropped > 0) line += concat("; ", f.dropped, " longer than ", *options_.max_length, " and dropped");
    services_.log.info(line);
  }

  const Options options_;
  const Services& services_;
  const uint64_t seed_;
  std::shared_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const instruction::ConversationEncoder> encoder_;
  std::optional<instruction::Mixture> mixture_;
  std::unique_ptr<const instruction::MixedDocuments> mixed_;  // where files have weights
  std::unique_ptr<Conversations> train_, validation_;
  int64_t batch_rows_ = 0, epoch_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "instruction", Instruction)
