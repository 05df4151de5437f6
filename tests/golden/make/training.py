"""Twenty optimizer steps in one process: the loop that every reference run shares."""
import torch
from torch.nn import functional as F


def mean_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def decay_groups(parameters, weight_decay, decay):
    """decay: "matrices" (tensors of two or more dimensions) or "all"."""
    with_decay = [p for p in parameters.values() if decay == "all" or p.dim() >= 2]
    without = [p for p in parameters.values() if not (decay == "all" or p.dim() >= 2)]
    groups = [{"params": with_decay, "weight_decay": weight_decay}, {"params": without, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def pieces_of(micro_batches, one_row_at_a_time):
    """[M, B, T+1] as the pieces that forward is called with."""
    return micro_batches.flatten(0, 1).split(1) if one_row_at_a_time else micro_batches.unbind(0)


def backward(forward, micro_batches, one_row_at_a_time):
    """Adds the gradients of the mean over all tokens; returns that mean."""
    pieces = pieces_of(micro_batches, one_row_at_a_time)
    total = 0.0
    for piece in pieces:
        loss = mean_loss(forward(piece[:, :-1]), piece[:, 1:]) / len(pieces)
        loss.backward()
        total += float(loss.detach())
    return total


def train(forward, parameters, batches, settings, rates, decay, fused=False, one_row_at_a_time=False):
    """Trains `parameters` (name: tensor) in place. Returns what curve.json holds: loss, norm before clipping, rate used, and
    the gradients' norms of the first step."""
    adam = settings["optimizer"]["params"]
    groups = decay_groups(parameters, adam["weight_decay"], decay)
    optimizer = torch.optim.AdamW(groups, betas=tuple(adam["betas"]), eps=adam["eps"], fused=fused, foreach=False)
    curve = {"loss": [], "grad_norm": [], "lr": list(rates)}
    for micro_batches, rate in zip(batches, rates):
        optimizer.zero_grad()
        curve["loss"].append(float(backward(forward, micro_batches, one_row_at_a_time)))
        if "step1_tensor_grad_norms" not in curve:
            curve["step1_tensor_grad_norms"] = {name: float(p.grad.double().norm()) for name, p in parameters.items()}
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), settings["gradient_clipping"], foreach=False)
        curve["grad_norm"].append(float(norm))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return curve
