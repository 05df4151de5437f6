#!/usr/bin/env python3
"""peer_pytorch.py's run of transformers' model with PEFT's adapters beside its weights, which are frozen.

    peer_peft.py --adapter FOLDER (and peer_pytorch.py's options)    trains the adapters of FOLDER
    peer_peft.py --adapter FOLDER --make-rank R ...                  writes FOLDER, adapters of all linear layers, and ends

Needs PEFT beside torch and transformers (tools/setup/deps peft, on PYTHONPATH).
"""
import sys

sys.dont_write_bytecode = True
import peer_pytorch  # noqa: E402  first: it looks for --malloc-tuned before torch is loaded
import peft  # noqa: E402
import torch  # noqa: E402


def options(parser):
    parser.add_argument("--adapter", required=True, metavar="FOLDER")
    parser.add_argument("--make-rank", type=int, metavar="R")


def make(args):
    torch.manual_seed(7)
    config = peft.LoraConfig(r=args.make_rank, lora_alpha=2 * args.make_rank, target_modules="all-linear", task_type="CAUSAL_LM")
    peft.get_peft_model(peer_pytorch.Transformers(args.model).model, config).save_pretrained(args.adapter)


class Adapters(peer_pytorch.Run):
    def shard(self):
        self.model.model = peft.PeftModel.from_pretrained(self.model.model, self.args.adapter, is_trainable=True)
        super().shard()

    def groups(self):
        return [{"params": [p for p in self.model.parameters() if p.requires_grad], "weight_decay": self.args.weight_decay}]


if __name__ == "__main__":
    arguments = peer_pytorch.read_options(options)
    arguments.implementation = "transformers"
    if arguments.make_rank:
        make(arguments)
    else:
        Adapters(arguments).train()
