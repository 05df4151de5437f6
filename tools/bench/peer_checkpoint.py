#!/usr/bin/env python3
"""peer_pytorch.py with checkpoints: blocks of steps without a save and with one, in turns, as `drivetrain bench checkpoint` has them.

    peer_checkpoint.py --save torch_save|dcp|dcp_async --every 10 --folder FOLDER (and peer_pytorch.py's options)

torch_save: rank 0 writes model and optimizer while the others wait. dcp: torch.distributed.checkpoint.save. dcp_async: async_save, which
copies and then writes on a thread. Prints one JSON object: seconds of the blocks, and those that training stood still for the save.
"""
import json
import os
import pathlib
import shutil
import sys
import time

sys.dont_write_bytecode = True

import peer_pytorch  # noqa: E402  first: it looks for --malloc-tuned before torch is loaded
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402

WARMUP = 3


class Saving(peer_pytorch.Run):
    future, saves, group = None, 0, None

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self):
        if self.future:
            self.future.result()
        self.saves += 1
        folder = pathlib.Path(self.args.folder) / f"save-{self.saves}"
        if self.args.save == "torch_save":
            if self.rank == 0:
                folder.mkdir(parents=True)
                torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, folder / "state.pt")
                file = os.open(folder / "state.pt", os.O_RDONLY)
                os.fsync(file), os.close(file)
            if self.world > 1:
                torch.distributed.barrier()
        elif self.args.save == "dcp":
            dcp.save(self.state(), checkpoint_id=str(folder))
        else:
            # A group of its own: its collectives run beside those of training.
            self.group = self.group or torch.distributed.new_group(backend="gloo")
            self.future = dcp.async_save(self.state(), checkpoint_id=str(folder), process_group=self.group)
        if self.rank == 0 and self.saves > 1:
            shutil.rmtree(folder.parent / f"save-{self.saves - 1}", ignore_errors=True)

    def block(self, batches, first, save):
        start = time.perf_counter()
        if save:
            self.save()
        stall = time.perf_counter() - start
        for step in range(first, first + self.args.every):
            loss, norm = self.step(*self.batch(batches, step))
            loss.item(), norm.item()
        return time.perf_counter() - start, stall

    def train(self):
        batches = peer_pytorch.read_safetensors(self.args.batches)["tokens"]
        for step in range(WARMUP):
            self.step(*self.batch(batches, step))
        without, saved, stalls = [], [], []
        for turn in range((self.args.steps - WARMUP) // (2 * self.args.every)):
            step = 2 * self.args.every * turn
            without.append(self.block(batches, step, False)[0])
            seconds, stall = self.block(batches, step, True)
            saved.append(seconds), stalls.append(max(self.of_all_ranks(stall)))
        if self.future:
            self.future.result()
        if self.rank == 0:
            print(json.dumps({"block_without_s": without, "block_with_s": saved, "stall_s": stalls}), flush=True)
        if self.world > 1:
            torch.distributed.destroy_process_group()


def add_options(parser):
    parser.add_argument("--save", choices=["torch_save", "dcp", "dcp_async"], required=True)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--folder", required=True)


def main():
    args = peer_pytorch.read_options(add_options)
    if args.save == "dcp_async" and "WORLD_SIZE" not in os.environ:
        sys.exit("peer_checkpoint.py: dcp_async wants the ranks of a torch.distributed run")
    Saving(args).train()


if __name__ == "__main__":
    main()
