"""Random conversations by our chat templates and by transformers; for check_chat_templates."""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import chat
from golden_files import DATA

WORDS = ["", " ", "\n", "hi", "naïve ", "東京", "🎉", "{{ x }}", "{% raw %}", "<|im_end|>", "</s>", "[/INST]", "<think>", "</think>", "\n\n", "\t", "\"",
         "'", "\\n", "\u00a0", "<tool_response>", "</tool_response>", "/no_think", "#}", "%}", "e\u0301", "\r\n", "<end_of_turn>", "0"]


def text(draw):
    return "".join(draw.choice(WORDS) for _ in range(draw.randrange(6)))


def value(draw, depth=0):
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind < 6:
        return [text(draw), draw.randrange(-9, 10**9), draw.random() * 10.0 ** draw.randrange(-20, 25), None, True, False][kind]
    count = draw.randrange(4)
    return [value(draw, depth + 1) for _ in range(count)] if kind == 6 else {text(draw) + str(i): value(draw, depth + 1) for i in range(count)}


def message(draw, before):
    alternates = "assistant" if before == "user" else "user"
    role = draw.choice([alternates] * 12 + ["system", "tool", "assistant", "user", "developer"])
    made = {"role": role, "content": None if draw.random() < 0.01 else text(draw)}
    if role == "assistant" and draw.random() < 0.25:
        calls = [chat.call(draw.choice(["f", "get_weather"]), {"a": value(draw)}) for _ in range(draw.choice([1, 1, 1, 2]))]
        made["tool_calls"] = calls
    if role == "assistant" and draw.random() < 0.15:
        made[draw.choice(["reasoning_content", "thinking", "reasoning"])] = text(draw)
    if role == "tool":
        made["tool_call_id"] = "a1B2c3D4e"
    return made


def case(draw):
    messages = [{"role": "system", "content": text(draw)}] if draw.random() < 0.3 else []
    for _ in range(draw.randrange(1, 8)):
        messages.append(message(draw, messages[-1]["role"] if messages else ""))
    made = {"messages": messages, "add_generation_prompt": draw.random() < 0.3}
    if draw.random() < 0.3:
        made["tools"] = [chat.WEATHER, chat.NOTHING][:draw.randrange(1, 3)]
    if draw.random() < 0.2:
        made["variables"] = {"enable_thinking": draw.random() < 0.5, "tools_in_user_message": draw.random() < 0.5}
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--render", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    draw, bad = random.Random(args.seed), 0
    print(f"{'template':24} {'equal':>7} {'refused by both':>16} {'different':>10}")
    for path in sorted((DATA / "chat").glob("*.jinja")) + args.files:
        template, cases = path.read_text(), chat.CASES + [case(draw) for _ in range(args.count)]
        ours = subprocess.run([args.render], check=True, text=True, capture_output=True, input="".join(
            json.dumps({"template": template, "tokens": chat.TOKENS, "add_generation_prompt": False} | case) + "\n" for case in cases))
        equal = refused = different = 0
        for one, line in zip(cases, ours.stdout.splitlines(), strict=True):
            wanted, found = chat.rendered(template, one), json.loads(line)
            if "raises" in wanted and "error" in found:
                refused += 1
            elif "raises" not in wanted and (found.get("text"), found.get("assistant")) == (wanted["text"], wanted.get("assistant", [])):
                equal += 1
            else:
                different += 1
                print(f"{path.name}: {json.dumps(one)}\n  wanted {wanted}\n  found  {found}")
        print(f"{path.stem:24} {equal:7} {refused:16} {different:10}", flush=True)
        bad += different
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
