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


def backward(forward, micro_batches, one_row_at_a_time, terms=None):
    """Adds the gradients of the mean over all tokens, and of further terms of the last forward; returns both."""
    pieces = pieces_of(micro_batches, one_row_at_a_time)
    total, more = 0.0, 0.0
    for piece in pieces:
        loss = mean_loss(forward(piece[:, :-1]), piece[:, 1:]) / len(pieces)
        term = terms() / len(pieces) if terms else 0.0
        (loss + term).backward()
        total += float(loss.detach())
        more += float(term.detach()) if terms else 0.0
    return total, total + more


def train(forward, parameters, batches, settings, rates, decay, fused=False, one_row_at_a_time=False, terms=None):
    """Trains `parameters` (name: tensor) in place. Returns what curve.json holds: loss, norm before clipping, rate used, and
    the gradients' norms of the first step. `terms`: what else is minimized, a function; the curve has then the total, too."""
    adam = settings["optimizer"]["params"]
    groups = decay_groups(parameters, adam["weight_decay"], decay)
    optimizer = torch.optim.AdamW(groups, betas=tuple(adam["betas"]), eps=adam["eps"], fused=fused, foreach=False)
    curve = {"loss": [], "grad_norm": [], "lr": list(rates), **({"loss_total": []} if terms else {})}
    for micro_batches, rate in zip(batches, rates):
        optimizer.zero_grad()
        loss, total = backward(forward, micro_batches, one_row_at_a_time, terms)
        curve["loss"].append(float(loss))
        if terms:
            curve["loss_total"].append(float(total))
        if "step1_tensor_grad_norms" not in curve:
            curve["step1_tensor_grad_norms"] = {name: float(p.grad.double().norm()) for name, p in parameters.items()}
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), settings["gradient_clipping"], foreach=False)
        curve["grad_norm"].append(float(norm))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return curve
