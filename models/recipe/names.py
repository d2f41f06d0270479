"""Train the names model: Karpathy's microGPT, a character-level transformer of 4,192 numbers.

The architecture is the one of the 200-line original, kept as it is so that a reader can put the two
side by side: learned positions, RMSNorm without a weight, no biases, ReLU, a separate output head.
"""

import csv
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

CHARACTERS = "abcdefghijklmnopqrstuvwxyz"
BOS = len(CHARACTERS)  # one token both begins and ends a name
CONFIG = {
    "model_type": "microgpt",
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 4,
    "block_size": 16,
    "vocab_size": len(CHARACTERS) + 1,
    "characters": CHARACTERS,
    "bos_token_id": BOS,
    "rms_norm_eps": 1e-5,
    "dtype": "float32",
}
IGNORED = -100  # a target that cross_entropy skips: the padding after a name's end


def initial_weights(generator):
    """Every matrix as [out, in], drawn like the original's: normal, deviation 0.08."""
    d, vocab, block = CONFIG["n_embd"], CONFIG["vocab_size"], CONFIG["block_size"]
    shapes = {
        "wte": (vocab, d),
        "wpe": (block, d),
        "lm_head": (vocab, d),
        "layer0.attn_wq": (d, d),
        "layer0.attn_wk": (d, d),
        "layer0.attn_wv": (d, d),
        "layer0.attn_wo": (d, d),
        "layer0.mlp_fc1": (4 * d, d),
        "layer0.mlp_fc2": (d, 4 * d),
    }
    return {
        name: (torch.randn(shape, generator=generator) * 0.08).requires_grad_()
        for name, shape in shapes.items()
    }


def norm(x):
    return F.rms_norm(x, (x.shape[-1],), eps=CONFIG["rms_norm_eps"])


def logits(weights, tokens):
    """tokens [names, positions] -> logits [names, positions, vocabulary]."""
    names, positions = tokens.shape
    heads, d = CONFIG["n_head"], CONFIG["n_embd"]

    def split(x):  # [names, positions, d] -> [names, heads, positions, d / heads]
        return x.view(names, positions, heads, d // heads).transpose(1, 2)

    x = norm(weights["wte"][tokens] + weights["wpe"][:positions])
    h = norm(x)
    q, k, v = (split(h @ weights[f"layer0.attn_w{part}"].T) for part in "qkv")
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    attended = attended.transpose(1, 2).reshape(names, positions, d)
    x = x + attended @ weights["layer0.attn_wo"].T
    h = F.relu(norm(x) @ weights["layer0.mlp_fc1"].T)
    x = x + h @ weights["layer0.mlp_fc2"].T
    return x @ weights["lm_head"].T


def batch_of(names):
    """The inputs and targets of some names, padded at the end to the longest."""
    rows = [[BOS, *map(CHARACTERS.index, name), BOS][: CONFIG["block_size"] + 1] for name in names]
    width = max(map(len, rows)) - 1
    inputs = torch.full((len(rows), width), BOS)
    targets = torch.full((len(rows), width), IGNORED)
    for i, row in enumerate(rows):
        inputs[i, : len(row) - 1] = torch.tensor(row[:-1])
        targets[i, : len(row) - 1] = torch.tensor(row[1:])
    return inputs, targets


def loss_of(weights, batch):
    inputs, targets = batch
    return F.cross_entropy(
        logits(weights, inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED
    )


def sample(weights, generator, temperature=0.5):
    """One name, drawn letter by letter."""
    tokens = [BOS]
    while len(tokens) <= CONFIG["block_size"]:
        last = logits(weights, torch.tensor([tokens]))[0, -1]
        token = int(torch.multinomial((last / temperature).softmax(-1), 1, generator=generator))
        if token == BOS:
            break
        tokens.append(token)
    return "".join(CHARACTERS[t] for t in tokens[1:])


def train(names_file: Path, out: Path, steps=600, batch=256, learning_rate=0.02, seed=0):
    started = time.time()
    names = names_file.read_text().split()
    random.Random(seed).shuffle(names)
    held_out, training = names[: len(names) // 10], names[len(names) // 10 :]
    generator = torch.Generator().manual_seed(seed)
    weights = initial_weights(generator)
    optimizer = torch.optim.AdamW(weights.values(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    batches, held_out_batch = batch_of(training), batch_of(held_out)
    curve = []
    for step in range(steps + 1):
        if step % 25 == 0:
            with torch.no_grad():
                row = {
                    "step": step,
                    "training_nats": round(loss_of(weights, batches).item(), 4),
                    "held_out_nats": round(loss_of(weights, held_out_batch).item(), 4),
                }
            curve.append(row)
        # Warm up over 100 steps, then half a cosine down to nothing.
        fraction = step / steps
        rate = learning_rate * min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * fraction))
        for group in optimizer.param_groups:
            group["lr"] = rate
        chosen = torch.randint(len(training), (batch,), generator=generator)
        loss = loss_of(weights, (batches[0][chosen], batches[1][chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    out.mkdir(parents=True, exist_ok=True)
    with open(out / "loss.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, curve[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(curve)
    save_file({name: w.detach().contiguous() for name, w in weights.items()}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    with torch.no_grad():
        samples = [sample(weights, generator) for _ in range(20)]
    report = {
        "parameters": sum(w.numel() for w in weights.values()),
        "names": {"training": len(training), "held_out": len(held_out)},
        "steps": steps,
        "seconds": round(time.time() - started, 1),
        **curve[-1],
        "samples": samples,
    }
    (out / "results.json").write_text(json.dumps(report, indent=2) + "\n")
    return curve, report
