"""Ids and masks of random conversations by ours and by transformers, for tokenizers in the forms of the families; for check_chat_templates.

    chat_token_counts.py --encode PROGRAM [--seed N] [--count N] [--keep FOLDER] [FORM...]

A form is a tokenizer of tests/golden/make/tokenizer_files.py or of FORMS below with a template of tests/golden/data/chat. Added tokens stand
in the texts of the conversations, too. Masks are compared where the template marks answers by {% generation %}.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import chat
import chat_counts
import tokenizer_files
from golden_files import DATA

MARKED = "chatml_generation"
# tokenizer, templates, and what stands in tokenizer_config.json beside the template
FORMS = {
    "gpt2": (tokenizer_files.gpt2, ["chatml", MARKED], {"eos_token": "<|endoftext|>"}),
    "qwen2": (tokenizer_files.qwen2, ["qwen2.5", "qwen3", MARKED], {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
    "llama3": (tokenizer_files.llama3, ["llama3.1", "llama3.2", MARKED], {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}),
    "deepseek": (tokenizer_files.deepseek, [MARKED], {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}),
    "o200k": (tokenizer_files.o200k, ["phi4", MARKED], {"eos_token": "<|endoftext|>"}),
    "digits": (tokenizer_files.digits, [MARKED, "smollm3"], {"add_prefix_space": True}),
    "llama2": (tokenizer_files.llama2, ["mistral_v1", "zephyr", MARKED], {"bos_token": "<s>", "eos_token": "</s>"}),
    "mistral": (tokenizer_files.mistral, ["mistral_v1", "mistral_v3", MARKED], {"bos_token": "<s>", "eos_token": "</s>"}),
    "metaspace": (tokenizer_files.metaspace, ["mistral_v1", MARKED], {"bos_token": "<s>", "eos_token": "</s>"}),
    "gemma": (tokenizer_files.gemma, ["gemma2", "gemma3", MARKED], {"bos_token": "<bos>", "eos_token": "<eos>"}),
    "phi3": (tokenizer_files.phi3, ["phi3", MARKED], {"bos_token": "<s>", "eos_token": "<|endoftext|>"}),
}


def write_folder(folder, tokenizer, template, config):
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (DATA / "chat" / f"{template}.jinja").read_text()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template} | config))


def conversations(draw, count, added):
    """Those of chat.py and random ones, with the added tokens in their texts."""
    chat_counts.WORDS = chat_counts.WORDS[:28] + added * (1 + 14 // max(1, len(added)))
    cases = chat.CASES + [chat_counts.case(draw) for _ in range(count)]
    return [with_objects({key: value for key, value in case.items() if key in ("messages", "tools")}) for case in cases]


def with_objects(case):
    """Arguments of calls as objects: ours makes them of texts of JSON, transformers leaves that to others."""
    case = json.loads(json.dumps(case))
    for call in (call for message in case["messages"] for call in message.get("tool_calls") or []):
        if isinstance(call["function"]["arguments"], str):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return case


def wanted_of(tokenizer, case, marked):
    try:
        found = tokenizer.apply_chat_template(case["messages"], tools=case.get("tools"), return_dict=True, return_assistant_tokens_mask=marked)
    except Exception as error:  # noqa: BLE001  of any kind: jinja's, or Python's in a template
        return {"error": f"{type(error).__name__}: {error}"}
    return {"ids": found["input_ids"]} | ({"mask": found["assistant_masks"]} if marked else {})


def compare(name, folder, program, cases):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    marked = "{% generation %}" in tokenizer.chat_template or "{%- generation" in tokenizer.chat_template
    ours = subprocess.run([program], check=True, text=True, capture_output=True, input="".join(
        json.dumps({"tokenizer": str(folder)} | case) + "\n" for case in cases))
    counts = dict(equal=0, refused=0, nothing=0, ids=0, mask=0, error=0)
    for case, line in zip(cases, ours.stdout.splitlines(), strict=True):
        wanted, found = wanted_of(tokenizer, case, marked), json.loads(line)
        if "error" in wanted or "error" in found:
            nothing = any(words in found.get("error", "") for words in ("nothing of the conversation is learned", "where messages[", "wanted a text"))
            kind = "refused" if "error" in wanted and "error" in found else "nothing" if nothing and "ids" in wanted else "error"
        else:
            kind = "ids" if found["ids"] != wanted["ids"] else "mask" if marked and found["mask"] != wanted["mask"] else "equal"
        counts[kind] += 1
        if kind in ("ids", "mask", "error") and counts[kind] <= 2:
            print(f"{name}: {kind} differs: {json.dumps(case, ensure_ascii=False)}\n  wanted {wanted}\n  found  {found}")
    print(f"{name:26}" + "".join(f" {counts[kind]:7}" for kind in counts), flush=True)
    return counts["ids"] + counts["mask"] + counts["error"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--encode", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("forms", nargs="*")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = args.keep or pathlib.Path(temporary)
        print(f"{'tokenizer, template':26}" + "".join(f" {word:>7}" for word in ("equal", "refused", "nothing", "ids", "mask", "error")))
        for form, (make, templates, config) in FORMS.items():
            if args.forms and form not in args.forms:
                continue
            tokenizer = make()
            for template in templates:
                folder, draw = place / form / template, random.Random(args.seed)
                write_folder(folder, tokenizer, template, config)
                added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
                bad += compare(f"{form}, {template}", folder, args.encode, conversations(draw, args.count, added))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
