#include "line_keys.h"

namespace drivetrain::instruction {
namespace {

using enum KeyPlace;
using enum KeyUse;

constexpr LineKey kKeys[] = {
    {line, "messages", honoured, "the messages (`messages_field`)"},
    {line, "prompt", honoured, "a message of `user` (`prompt_field`)"},
    {line, "response", honoured, "a message of `assistant` (`response_field`)"},
    {line, "instruction", honoured, "with `output`: Alpaca's instruction, in Alpaca's own words around it"},
    {line, "input", honoured, "with `instruction`: Alpaca's input"},
    {line, "output", honoured, "with `instruction`: Alpaca's answer"},
    {line, "system", honoured, "a first message of `system`"},
    {line, "history", honoured, "pairs of a user's and an assistant's text in front of a prompt or instruction"},
    {line, "tools", left_out, "the tools that the answers may call"},
    {line, "functions", left_out, "the functions that the answers may call"},
    {line, "tool_choice", left_out, "which tool has to be called"},
    {line, "documents", left_out, "texts that the answers rest on"},
    {line, "images", left_out, "pictures"},
    {line, "videos", left_out, "films"},
    {line, "audios", left_out, "sounds"},
    {line, "chosen", left_out, "the better answer of two"},
    {line, "rejected", left_out, "the worse answer of two"},
    {line, "completion", left_out, "an answer"},
    {line, "mask", left_out, "whose messages are not learned"},
    {line, "chat_template_kwargs", left_out, "what a chat template is told"},
    {message, "role", honoured, "who speaks (`role_field`)"},
    {message, "content", honoured, "what is said (`content_field`)"},
    {message, "weight", honoured, "0: the message is not learned; 1: as its role says (OpenAI)"},
    {message, "train", honoured, "true or false: whether the message is learned, whatever its role (Axolotl)"},
    {message, "loss", honoured, "true or false: whether the message is learned, whatever its role (ms-swift)"},
    {message, "tool_calls", left_out, "the calls that belong to the answer"},
    {message, "function_call", left_out, "the call that belongs to the answer"},
    {message, "tool_call_id", left_out, "which call is answered"},
    {message, "name", left_out, "the name of who speaks"},
    {message, "reasoning_content", left_out, "the thoughts in front of the answer"},
    {message, "reasoning", left_out, "the thoughts in front of the answer"},
    {message, "thinking", left_out, "the thoughts in front of the answer"},
    {message, "refusal", left_out, "an answer that refuses"},
    {message, "images", left_out, "pictures"},
    {message, "audio", left_out, "sounds"},
    {message, "mask", left_out, "whether the message is learned"},
    {message, "masked", left_out, "whether the message is learned"},
    {message, "training", left_out, "whether the message is learned"},
    {message, "train_detail", left_out, "which parts of the message are learned"},
};

}  // namespace

std::span<const LineKey> line_keys() { return kKeys; }

const LineKey* find_line_key(KeyPlace place, const std::string& name) {
  for (const LineKey& key : kKeys)
    if (key.place == place && key.name == name) return &key;
  return nullptr;
}

}  // namespace drivetrain::instruction
