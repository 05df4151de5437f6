#!/usr/bin/env python3
"""torch.distributed's collectives on the CPU (gloo), timed as `drivetrain bench collectives` times ours.

    peer_collectives.py --sizes 65536,33554432 [--op all_reduce,...] [--rounds 10] [--threads 1]

Runs as one rank with torch.distributed's variables set. Bytes mean the whole payload. After a warm-up whose values are compared every
round makes as many calls in a row as fill some milliseconds, and counts as long as it took the slowest rank. Rank 0 prints one
object per collective and size.
"""
import argparse
import json
import math
import time

import torch
import torch.distributed as dist

ROUND_SECONDS, MOST_CALLS = 5e-3, 2000


def whole(n, fill):
    return torch.full((n,), float(fill))


class Case:
    def __init__(self, op, count):
        self.op, self.n, self.me = op, dist.get_world_size(), dist.get_rank()
        share = max(1, count // self.n)
        self.count = share * self.n
        mine = self.me + 1
        in_count, out_count = {"all_gather": (share, self.count), "reduce_scatter": (self.count, share)}.get(op, (self.count, self.count))
        self.input = whole(in_count, mine)
        self.out = self.input if op in ("all_reduce", "broadcast") else whole(out_count, -1)

    def call(self):
        if self.op == "all_reduce":
            dist.all_reduce(self.out)
        elif self.op == "all_gather":
            dist.all_gather_into_tensor(self.out, self.input)
        elif self.op == "reduce_scatter":
            dist.reduce_scatter_tensor(self.out, self.input)
        elif self.op == "all_to_all":
            dist.all_to_all_single(self.out, self.input)
        elif self.op == "broadcast":
            dist.broadcast(self.out, 0)
        else:
            there, back = (self.me + 1) % self.n, (self.me - 1) % self.n
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, self.input, there), dist.P2POp(dist.irecv, self.out, back)])
            for work in works:
                work.wait()

    def check(self):
        self.call()
        n = self.n
        wanted = {"all_reduce": n * (n + 1) / 2, "reduce_scatter": n * (n + 1) / 2, "broadcast": 1, "send_recv": (self.me - 1) % n + 1}
        if self.op in wanted:
            right = bool((self.out == wanted[self.op]).all())
        else:
            right = torch.equal(self.out, torch.arange(1.0, n + 1).repeat_interleave(self.count // n))
        if not right:
            raise SystemExit(f"peer_collectives.py: {self.op} of {4 * self.count} bytes gave wrong values")
        if self.op == "all_reduce":
            self.out.zero_()

    def seconds(self, calls):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            self.call()
        return (time.perf_counter() - start) / calls


def time_case(op, size, rounds):
    case = Case(op, size // 4)
    case.check()
    calls = torch.tensor(min(MOST_CALLS, max(1, math.ceil(ROUND_SECONDS / min(case.seconds(3), case.seconds(3))))))
    dist.broadcast(calls, 0)
    mine = [case.seconds(int(calls)) for _ in range(rounds)]
    ranks = [None] * case.n
    dist.all_gather_object(ranks, mine)
    return {"op": op, "bytes": 4 * case.count, "calls": int(calls), "rounds_s": [max(round) for round in zip(*ranks)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--op", default="all_reduce")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    for op in args.op.split(","):
        for size in args.sizes.split(","):
            row = time_case(op, int(size), args.rounds)
            if dist.get_rank() == 0:
                print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
