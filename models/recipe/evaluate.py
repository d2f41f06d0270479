"""Judge exported models on text that training never saw: `python evaluate.py --work DIR NAME…`.

Reads the files as they are shipped, bf16 and all, and writes results.json beside them. A draft is
judged against its target too, `--target NAME`: how many of its guesses would be accepted.
"""

import argparse
import json
import math
import time
from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from config import ARCHITECTURES
from export import write_json
from model import LanguageModel
from notes_score import notes_recall
from recall_score import answered, load_questions
from text import Tokens
from train import THREADS, held_out_loss

CONTEXT = 512
# Acceptance is measured on this many continuations of held-out text, each of so many tokens.
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 16, 32, 48


def load_exported(directory: Path):
    said = json.loads((directory / "config.json").read_text())
    config = ARCHITECTURES[said["architectures"][0]]
    model = LanguageModel(config(**{field.name: said[field.name] for field in fields(config)}))
    tensors = load_file(directory / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model.eval()


def losses(model, work, tokenizer):
    """Nats a token and bits a byte on held-out text, in windows of the trained context."""
    result = {}
    for name in ("docs", "tales"):
        text = Tokens.load(work / f"tokens/{name}_held_out.npz")
        nats = held_out_loss(model, text, tokens=len(text.ids))
        tokens_per_byte = len(text.ids) / len(tokenizer.decode(text.ids.tolist()).encode())
        result[name] = dict(
            nats_per_token=round(nats, 4),
            bits_per_byte=round(nats / math.log(2) * tokens_per_byte, 4),
            tokens=len(text.ids) // CONTEXT * CONTEXT,
        )
    return result


def share(flags):
    return dict(right=sum(flags), questions=len(flags), share=round(sum(flags) / len(flags), 4))


def recall(model, work, tokenizer):
    """Exact match on held-out worlds: in all, by pairs, and by tokens from the value to the question's end."""
    questions = load_questions(work / "corpus/recall_questions.jsonl", tokenizer, CONTEXT)
    right = answered(model, questions)
    by_pairs, by_distance = {}, {}
    for (ids, answer, fields), flag in zip(questions, right):
        by_pairs.setdefault(fields["pairs"], []).append(flag)
        distance = len(ids) - ids.index(answer)
        by_distance.setdefault(distance // 100, []).append(flag)
    return dict(
        all=share(right),
        by_pairs={str(k): share(v) for k, v in sorted(by_pairs.items())},
        by_distance={f"{k * 100}-{k * 100 + 99}": share(v) for k, v in sorted(by_distance.items())},
    )


@torch.no_grad()
def continued(model, tokens, count, temperature, generator):
    """tokens [rows, n] with `count` more, each the likeliest (temperature 0) or drawn."""
    for _ in range(count):
        logits = model.hidden(tokens)[:, -1] @ model.model.embed_tokens.weight.T
        if temperature == 0:
            token = logits.argmax(-1, keepdim=True)
        else:
            token = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, token], dim=1)
    return tokens


def tokens_per_round(accepted, length):
    """Tokens a target pass yields when `length` are drafted: the accepted run and one of its own.

    A round counts if the row has all of its guesses: what is cut off would pass for short.
    """
    rounds = total = 0
    for row in accepted.tolist():
        at = 0
        while at + length <= len(row):
            run = [*row[at : at + length], False].index(False)
            at += run + 1
            total += run + 1
            rounds += 1
    return round(total / rounds, 2)


@torch.no_grad()
def acceptance(target, draft, work):
    """How often the target accepts the draft's token, on the target's own continuations."""
    generator = torch.Generator().manual_seed(0)
    result = {}
    for name in ("docs", "tales"):
        text = Tokens.load(work / f"tokens/{name}_held_out.npz")
        starts = torch.randint(len(text.ids) - PROMPT_TOKENS, (PROMPTS,), generator=generator).tolist()
        prompts = torch.tensor([text.ids[s : s + PROMPT_TOKENS].tolist() for s in starts])
        for temperature in (0, 1):
            tokens = continued(target, prompts, NEW_TOKENS, temperature, generator)
            p, q = (model(tokens[:, :-1])[:, PROMPT_TOKENS - 1 :] for model in (target, draft))
            if temperature == 0:
                accepted = p.argmax(-1) == q.argmax(-1)
                rate = accepted.float().mean()
            else:
                # A token drawn from q is accepted with probability min(1, p/q): in all, sum min(p, q).
                chance = torch.minimum(p.softmax(-1), q.softmax(-1)).sum(-1)
                accepted = torch.rand(chance.shape, generator=generator) < chance
                rate = chance.mean()
            result[f"{name}, {'greedy' if temperature == 0 else 'T=1'}"] = dict(
                acceptance=round(float(rate), 4),
                tokens_per_round={str(n): tokens_per_round(accepted, n) for n in (2, 4, 6)},
                tokens=accepted.numel(),
            )
    return result


def samples(model, work, tokenizer):
    """Greedy continuations of a recall prompt, of a chat and of documentation."""
    question = json.loads((work / "corpus/recall_questions.jsonl").read_text().splitlines()[39])
    prompts = [
        question["prompt"],
        "<|user|>\nTell me a story about Ada.<|end|>\n<|assistant|>\n",
        "Ownership is a set of rules that",
    ]
    result = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt).ids
        tokens = continued(model, torch.tensor([ids]), 120, 0, None)[0, len(ids) :]
        continuation = tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
        result.append(dict(prompt=prompt, greedy=continuation))
    return result


def evaluate(name, work: Path, weights: Path, target=None):
    started = time.time()
    torch.set_num_threads(THREADS)
    tokenizer = Tokenizer.from_file(str(weights / name / "tokenizer.json"))
    model = load_exported(weights / name)
    notes = notes_recall(model, work / "corpus", tokenizer, CONTEXT)
    results = dict(
        parameters=sum(p.numel() for p in model.parameters()),
        held_out=losses(model, work, tokenizer),
        recall=recall(model, work, tokenizer),
        notes={kind: share(right) for kind, right in notes.items()},
        samples=samples(model, work, tokenizer),
    )
    if target is not None:
        results["acceptance"] = acceptance(load_exported(weights / target), model, work)
    results["evaluation_seconds"] = round(time.time() - started)
    write_json(weights / name / "results.json", results)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=Path(__file__).parents[1] / "weights")
    parser.add_argument("--target", help="whose text the models are to guess")
    arguments = parser.parse_args()
    for each in arguments.names:
        results = evaluate(each, arguments.work, arguments.weights, arguments.target)
        print(json.dumps(results, indent=2))
