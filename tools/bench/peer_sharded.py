#!/usr/bin/env python3
"""peer_pytorch.py under another way of sharing the state among ranks: the same model, tokens, optimizer and clipping.

    peer_sharded.py --strategy ddp|zero_redundancy|fsdp2|deepspeed_zero0..3 (and peer_pytorch.py's options)

ddp is peer_pytorch.py itself. zero_redundancy: DistributedDataParallel with ZeroRedundancyOptimizer. fsdp2: fully_shard of every
block and of the rest. deepspeed_zeroN: the DeepSpeed engine at that stage, over the same gloo group. Each with its own defaults.
"""
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cuda" if "cuda" in sys.argv else "cpu")
sys.dont_write_bytecode = True

import peer_pytorch  # noqa: E402  first: it looks for --malloc-tuned before torch is loaded
import torch  # noqa: E402
from torch import nn  # noqa: E402


class ZeroRedundancy(peer_pytorch.Run):
    def shard(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        self.runner = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = ZeroRedundancyOptimizer(self.groups(), optimizer_class=torch.optim.AdamW, **self.adam())


class Fsdp2(peer_pytorch.Run):
    def shard(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh(self.device.type, (self.world,))
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        self.runner = fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.groups(), **self.adam())

    def clip(self):
        norm = super().clip()
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


class DeepSpeed(peer_pytorch.Run):
    stage = 0

    def shard(self):
        import deepspeed
        deepspeed.init_distributed(dist_backend="nccl" if self.device.type == "cuda" else "gloo", verbose=False)
        config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": self.args.clip,
                  "zero_optimization": {"stage": self.stage}, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9}
        optimizer = torch.optim.AdamW(self.groups(), **self.adam())
        self.runner, self.optimizer, _, _ = deepspeed.initialize(model=self.model, optimizer=optimizer, config=config)

    def backward_and_update(self, loss):
        self.runner.backward(loss)
        self.runner.step()
        norm = self.runner.get_global_grad_norm()
        return torch.as_tensor(0.0 if norm is None else norm)


STRATEGIES = {"ddp": peer_pytorch.Run, "zero_redundancy": ZeroRedundancy, "fsdp2": Fsdp2}
STRATEGIES.update({f"deepspeed_zero{n}": type(f"DeepSpeed{n}", (DeepSpeed,), {"stage": n}) for n in range(4)})


def main():
    args = peer_pytorch.read_options(lambda parser: parser.add_argument("--strategy", choices=list(STRATEGIES), default="ddp"))
    if args.strategy != "ddp" and "WORLD_SIZE" not in os.environ:
        sys.exit(f"peer_sharded.py: {args.strategy} wants the ranks of a torch.distributed run (RANK, WORLD_SIZE, MASTER_ADDR, "
                 "MASTER_PORT)")
    if args.strategy.startswith("deepspeed") and args.dtype != "float32":
        sys.exit("peer_sharded.py: DeepSpeed has float32 here only: its bf16 is another arithmetic than autocast")
    STRATEGIES[args.strategy](args).train()


if __name__ == "__main__":
    main()
