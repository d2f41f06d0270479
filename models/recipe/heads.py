"""Heads that guess further ahead: Medusa's and a block of multi-token prediction, trained on the frozen target.

Row i of the target's last hidden state says what token i + 1 is to be. Medusa's head k makes of the same row a guess
at token i + 1 + k, and does not know what comes between (Cai et al. 2024). The block of multi-token prediction (MTP;
Gloeckle et al. 2024, in DeepSeek-V3's form) is also told token i + 1, and gives a hidden state that says what token
i + 2 is to be; told that one too, it goes on from its own. Both end in the target's own head, so both are small.

`python models/recipe/heads.py --work DIR [--tokens N]` trains and judges them; run.py does it as its last step.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from attention import Attention, Norm, Rows, join, linear, rotary_tables, split
from evaluate import NEW_TOKENS, PROMPT_TOKENS, PROMPTS, continued, load_exported
from export import write_json
from model import FeedForward
from text import Tokens
from train import Run, THREADS, loss_of

MEDUSA_HEADS = 3
# The MTP block learns to be told so many of its own guesses; it may go on further.
MTP_DEPTHS = 2
CONTEXT = 512


class Chain(Rows):
    """What the MTP block's attention is given. Row i of depth d stands behind row i of depth d - 1: it sees all
    that its chain's first row sees, and its own chain. So it is when drafting: what came before is the target's."""

    def __init__(self, config, rows):
        super().__init__(config, rows)
        self.keys, self.values = [], []
        self.first = torch.ones(rows, rows, dtype=torch.bool).tril()
        self.own = torch.eye(rows, dtype=torch.bool)
        self.tables = rotary_tables(config.head_dim, config.rope_theta, rows + MTP_DEPTHS)

    def go_on(self, depth):
        rows = len(self.own)
        self.cosines, self.sines = (table[depth : depth + rows] for table in self.tables)


class ChainAttention(Attention):
    def forward(self, x, chain):
        kv_heads = self.config.num_key_value_heads
        q = chain.rotate(split(self.q_proj(x), self.config.num_attention_heads))
        chain.keys.append(chain.rotate(split(self.k_proj(x), kv_heads)))
        chain.values.append(split(self.v_proj(x), kv_heads))
        seen = torch.cat([chain.first] + [chain.own] * (len(chain.keys) - 1), dim=1)
        k, v = torch.cat(chain.keys, dim=2), torch.cat(chain.values, dim=2)
        return self.o_proj(join(F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)))


class Mtp(nn.Module):
    """Hidden states and the tokens after them -> hidden states one place on. Named as DeepSeek-V3's file has it."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        d, eps = config.hidden_size, config.rms_norm_eps
        self.enorm, self.hnorm = Norm(d, eps), Norm(d, eps)
        self.eh_proj = linear(2 * d, d)
        self.input_layernorm, self.post_attention_layernorm = Norm(d, eps), Norm(d, eps)
        self.self_attn = ChainAttention(config, 0)
        self.mlp = FeedForward(config)
        self.norm = Norm(d, eps)

    def forward(self, hidden, embedded, chain):
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], dim=-1))
        x = x + self.self_attn(self.input_layernorm(x), chain)
        return self.norm(x + self.mlp(self.post_attention_layernorm(x)))


class Heads(nn.Module):
    def __init__(self, target):
        super().__init__()
        d = target.config.hidden_size
        self.medusa = nn.ModuleList([linear(d, d) for _ in range(MEDUSA_HEADS)])
        self.mtp = Mtp(target.config)
        for name, matrix in self.named_parameters():
            if name.startswith("medusa") or name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(matrix)  # at first, what goes in comes out
            elif matrix.dim() == 2:
                nn.init.normal_(matrix, 0, matrix.shape[1] ** -0.5)
        # As loud as what the head is used to.
        self.mtp.norm.weight.data.copy_(target.model.norm.weight)

    def medusa_hidden(self, hidden):
        """[.., d] -> for each head [.., d]"""
        return [hidden + F.silu(head(hidden)) for head in self.medusa]

    def mtp_hidden(self, hidden, embedded, depths=MTP_DEPTHS):
        """hidden [batch, rows, d], embedded [batch, rows + depths - 1, d], the tokens after -> for each depth the same."""
        rows = hidden.shape[1]
        chain, result = Chain(self.mtp.config, rows), []
        for depth in range(depths):
            chain.go_on(depth)
            hidden = self.mtp(hidden, embedded[:, depth : depth + rows], chain)
            result.append(hidden)
        return result


def logits_of(target, hidden):
    return F.linear(hidden, target.model.embed_tokens.weight)


class HeadsRun(Run):
    """Training of both at once: they read the same hidden states, which cost more than they do."""

    # Medusa's matrices begin at nothing and have far to go: what goes in says one token and is to say another.
    # Muon's steps have one size, and after 170 of them they had not got there.
    not_for_muon = ("embed", "medusa")

    def __init__(self, name, target, work: Path, total_tokens, evaluate_every=250):
        torch.manual_seed(0)
        super().__init__(name, work, total_tokens, target, evaluate_every, model=Heads(target))

    def backward(self, replica, ids, weights):
        replica.zero_grad(set_to_none=True)
        target, rows = self.teacher, ids.shape[1] - 1 - max(MEDUSA_HEADS, MTP_DEPTHS)
        with torch.no_grad():
            hidden = target.hidden(ids[:, :-1])
            said = logits_of(target, hidden)
            embedded = target.model.embed_tokens(ids[:, 1 : rows + MTP_DEPTHS])
        first = hidden[:, :rows]
        loss = 0.0
        for ahead, guess in enumerate(replica.medusa_hidden(first), 1):
            # What comes between is unknown, so the target's distribution after it is not what to learn.
            at = slice(ahead, ahead + rows)
            loss = loss + loss_of(logits_of(target, guess), ids[:, 1:][:, at], weights[:, at])
        for ahead, guess in enumerate(replica.mtp_hidden(first, embedded), 1):
            at = slice(ahead, ahead + rows)
            loss = loss + loss_of(logits_of(target, guess), ids[:, 1:][:, at], weights[:, at], said[:, at])
        loss.backward()
        return loss.item()

    @torch.no_grad()
    def figures(self):
        """By text and head, how often the likeliest token is the target's likeliest, teacher-forced on held-out text."""
        row = {}
        for name, text in self.held_out.items():
            ids = torch.from_numpy(text.ids[: 16 * (CONTEXT + 1)].astype("int64")).view(16, -1)
            for head, share in agreement(self.teacher, self.model, ids).items():
                row[f"{name}_{head}"] = share
        return row


@torch.no_grad()
def agreement(target, heads, ids, first=0):
    """ids [batch, n] -> by head, the share of rows from `first` on whose likeliest token is the target's likeliest
    one place further on, `top-4` for Medusa's also if it is among its four likeliest."""
    rows = ids.shape[1] - 1 - max(MEDUSA_HEADS, MTP_DEPTHS)
    hidden = target.hidden(ids)
    said = logits_of(target, hidden).argmax(-1)
    result = {}
    for ahead, guess in enumerate(heads.medusa_hidden(hidden[:, :rows]), 1):
        top = logits_of(target, guess).topk(4).indices[:, first:]
        right = top == said[:, first + ahead : rows + ahead, None]
        result[f"medusa_{ahead}"] = round(right[..., 0].float().mean().item(), 4)
        result[f"medusa_{ahead}_top4"] = round(right.any(-1).float().mean().item(), 4)
    embedded = target.model.embed_tokens(ids[:, 1 : rows + MTP_DEPTHS])
    for ahead, guess in enumerate(heads.mtp_hidden(hidden[:, :rows], embedded), 1):
        right = logits_of(target, guess).argmax(-1)[:, first:] == said[:, first + ahead : rows + ahead]
        result[f"mtp_{ahead}"] = round(right.float().mean().item(), 4)
    return result


def export(heads, out: Path):
    """Two files: Medusa's heads, and the MTP block as the one layer of a model whose embedding it makes itself."""
    out.mkdir(parents=True, exist_ok=True)
    medusa = {f"medusa.{k}.weight": head.weight for k, head in enumerate(heads.medusa)}
    mtp = {
        name if name == "norm.weight" else f"layers.0.{name}": tensor
        for name, tensor in heads.mtp.state_dict().items()
    }
    mtp = {f"model.{name}": tensor for name, tensor in mtp.items()}
    for file, tensors in (("medusa", medusa), ("mtp", mtp)):
        tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
        save_file(tensors, out / f"{file}.safetensors", metadata={"format": "pt"})
        (out / f"{file}.safetensors").chmod(0o644)


def load_exported_heads(target, folder: Path):
    heads = Heads(target)
    medusa, mtp = (load_file(folder / f"{file}.safetensors") for file in ("medusa", "mtp"))
    heads.medusa.load_state_dict({n.removeprefix("medusa."): t.float() for n, t in medusa.items()})
    names = {n: n.removeprefix("model.").removeprefix("layers.0.") for n in mtp}
    heads.mtp.load_state_dict({names[n]: t.float() for n, t in mtp.items()})
    return heads.eval()


def evaluate(target, heads, work: Path, out: Path):
    """Agreement on the target's own continuations of held-out text, greedy and drawn."""
    started = time.time()
    torch.set_num_threads(THREADS)
    generator = torch.Generator().manual_seed(0)
    results = dict(parameters=dict(
        medusa=sum(p.numel() for p in heads.medusa.parameters()),
        mtp=sum(p.numel() for p in heads.mtp.parameters()),
    ))
    for name in ("docs", "tales"):
        text = Tokens.load(work / f"tokens/{name}_held_out.npz")
        starts = torch.randint(len(text.ids) - PROMPT_TOKENS, (PROMPTS,), generator=generator).tolist()
        prompts = torch.tensor([text.ids[s : s + PROMPT_TOKENS].tolist() for s in starts])
        for temperature in (0, 1):
            tokens = continued(target, prompts, NEW_TOKENS, temperature, generator)
            found = agreement(target, heads, tokens, PROMPT_TOKENS - 1)
            results[f"{name}, {'greedy' if temperature == 0 else 'T=1'}"] = found
    results["evaluation_seconds"] = round(time.time() - started)
    write_json(out / "results.json", results)
    return results


def train(name, target_folder: Path, work: Path, out: Path, tokens, evaluate_every=250):
    """Every step; returns the curve."""
    target = load_exported(target_folder).requires_grad_(False)
    run = HeadsRun(name, target, work, tokens, evaluate_every)
    run.train()
    run.write_curve_to(out / "loss.csv")
    export(run.model, out)
    evaluate(target, load_exported_heads(target, out), work, out)
    return run.curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=Path(__file__).parents[1] / "weights")
    parser.add_argument("--tokens", type=float, default=1.5e6)
    arguments = parser.parse_args()
    weights, tokens = arguments.weights, int(arguments.tokens)
    train("heads", weights / "target", arguments.work, weights / "heads", tokens)
