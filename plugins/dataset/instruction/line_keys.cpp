#include "line_keys.h"

namespace drivetrain::instruction {
namespace {

using enum KeyUse;

constexpr KeyRow kKeys[] = {
    {kLine, "messages", honoured, "the messages (`messages_field`)"},
    {kLine, "conversations", honoured, "the messages of ShareGPT's files, where there is no `messages_field`"},
    {kLine, "prompt", honoured, "a message of `user` (`prompt_field`)"},
    {kLine, "response", honoured, "a message of `assistant` (`response_field`)"},
    {kLine, "instruction", honoured, "with `output`: Alpaca's instruction, in Alpaca's own words around it"},
    {kLine, "input", honoured, "with `instruction`: Alpaca's input"},
    {kLine, "output", honoured, "with `instruction`: Alpaca's answer"},
    {kLine, "system", honoured, "a first message of `system`"},
    {kLine, "history", honoured, "pairs of a user's and an assistant's text in front of a prompt or instruction"},
    {kLine, "tools", left_out, "the tools that the answers may call"},
    {kLine, "functions", left_out, "the functions that the answers may call"},
    {kLine, "tool_choice", left_out, "which tool has to be called"},
    {kLine, "documents", left_out, "texts that the answers rest on"},
    {kLine, "images", left_out, "pictures"},
    {kLine, "videos", left_out, "films"},
    {kLine, "audios", left_out, "sounds"},
    {kLine, "chosen", left_out, "the better answer of two"},
    {kLine, "rejected", left_out, "the worse answer of two"},
    {kLine, "completion", left_out, "an answer"},
    {kLine, "mask", left_out, "whose messages are not learned"},
    {kLine, "chat_template_kwargs", left_out, "what a chat template is told"},
    {kMessage, "role", honoured, "who speaks (`role_field`)"},
    {kMessage, "content", honoured, "what is said (`content_field`)"},
    {kMessage, "from", honoured,
     "in `conversations`: who speaks, `human` and `gpt` for `user` and `assistant` (ShareGPT)"},
    {kMessage, "value", honoured, "in `conversations`: what is said (ShareGPT)"},
    {kMessage, "weight", honoured, "0: the message is not learned; 1: as its role says (OpenAI)"},
    {kMessage, "train", honoured, "true or false: whether the message is learned, whatever its role (Axolotl)"},
    {kMessage, "loss", honoured, "true or false: whether the message is learned, whatever its role (ms-swift)"},
    {kMessage, "tool_calls", left_out, "the calls that belong to the answer"},
    {kMessage, "function_call", left_out, "the call that belongs to the answer"},
    {kMessage, "tool_call_id", left_out, "which call is answered"},
    {kMessage, "name", left_out, "the name of who speaks"},
    {kMessage, "reasoning_content", left_out, "the thoughts in front of the answer"},
    {kMessage, "reasoning", left_out, "the thoughts in front of the answer"},
    {kMessage, "thinking", left_out, "the thoughts in front of the answer"},
    {kMessage, "refusal", left_out, "an answer that refuses"},
    {kMessage, "images", left_out, "pictures"},
    {kMessage, "audio", left_out, "sounds"},
    {kMessage, "mask", left_out, "whether the message is learned"},
    {kMessage, "masked", left_out, "whether the message is learned"},
    {kMessage, "training", left_out, "whether the message is learned"},
    {kMessage, "train_detail", left_out, "which parts of the message are learned"},
};

}  // namespace

std::span<const KeyRow> line_keys() { return kKeys; }

}  // namespace drivetrain::instruction
