"""The whole recipe, from nothing to evaluated weights: `python models/recipe/run.py`.

Needs what requirements.txt pins, and Rust with its documentation (`rustup component add rust-docs`).
The generated text, the tokenizer and the token files are kept if they are there, and training resumes from its last
checkpoint, so that the same command continues after any interruption. The names model, the exported files and the
evaluations are made again each time. `--smoke DIR` proves in two or three minutes that every step works, at a size that
teaches nothing.
"""

import argparse
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

import docs_text
import heads
import names
from config import FAMILY
from evaluate import evaluate, load_exported, tokens_per_round
from text import documents, encode, train_tokenizer
from train import load_model, train_and_export

RECIPE = Path(__file__).resolve().parent
MODELS = RECIPE.parent
GENERATED = ["tales", "chat", "recall_list", "recall_near", "recall_far", "recall_notes"]


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    corpus_megabytes: int
    prefix: str  # of the names of the models
    target_tokens: int
    draft_tokens: int
    variant_tokens: int
    heads_tokens: int
    names_steps: int
    evaluate_every: int


FULL = Size(44, "", 17_500_000, 10_000_000, 3_500_000, 1_500_000, 600, 250)
SMOKE = Size(3, "smoke-", 300_000, 300_000, 200_000, 200_000, 100, 30)
VARIANTS = ["mla", "hybrid"]
# What the variants are measured by. Its figures are kept beside theirs, its weights in the work folder.
CONTROL = "gqa"


def write_corpus(work: Path, megabytes):
    if (work / "corpus/words.txt").exists():
        return
    print("writing the generated text", flush=True)
    subprocess.run(
        ["cargo", "run", "--release", "--package", "embedded-models", "--example", "write_corpus",
         "--", str(work / "corpus"), str(megabytes)],
        cwd=MODELS, check=True,
    )


def make_tokens(work: Path):
    finished = work / "tokens/finished"
    if finished.exists():
        return
    print("reading the documentation, training the tokenizer, encoding", flush=True)
    training, held_out = docs_text.extract()
    tokenizer_file = work / "tokenizer.json"
    if not tokenizer_file.exists():
        train_tokenizer(training, work / "corpus").save(str(tokenizer_file))
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    (work / "tokens").mkdir(exist_ok=True)
    encode(tokenizer, [(text, []) for text in training]).save(work / "tokens/docs.npz")
    encode(tokenizer, [(text, []) for text in held_out]).save(work / "tokens/docs_held_out.npz")
    for name in GENERATED:
        for part in (name, f"{name}_held_out"):
            encode(tokenizer, documents(work / f"corpus/{part}.jsonl")).save(work / f"tokens/{part}.npz")
    finished.touch()


def run(work: Path, weights: Path, size: Size):
    """Every step; returns the loss curves of the names model and, by name, of the others."""
    work.mkdir(parents=True, exist_ok=True)
    write_corpus(work, size.corpus_megabytes)
    make_tokens(work)
    print("training the names model", flush=True)
    names_curve, _ = names.train(MODELS / "data/names.txt", weights / "names", steps=size.names_steps)
    target, draft, control = (size.prefix + name for name in ("target", "draft", CONTROL))
    variants = [size.prefix + name for name in VARIANTS]
    unshipped = work / "weights"
    folders, every = (work, weights), size.evaluate_every
    curves = {target: train_and_export(target, *folders, size.target_tokens, every)}
    teacher = load_model(target, work)
    curves[draft] = train_and_export(draft, *folders, size.draft_tokens, every, teacher)
    for name in variants:
        curves[name] = train_and_export(name, *folders, size.variant_tokens, every)
    curves[control] = train_and_export(control, work, unshipped, size.variant_tokens, every)
    print("evaluating", flush=True)
    for name in [target, *variants]:
        evaluate(name, work, weights)
    evaluate(draft, work, weights, target)
    evaluate(control, work, unshipped)
    name = size.prefix + "heads"
    curves[name] = heads.train(
        name, weights / target, work, weights / name, size.heads_tokens, size.evaluate_every
    )
    (weights / control).mkdir(exist_ok=True)
    for file in ("loss.csv", "results.json"):
        shutil.copy(unshipped / control / file, weights / control / file)
    return names_curve, curves


def smoke(directory: Path):
    weights, work = directory / "weights", directory / "work"
    # Training goes on from them: of models that have had all their tokens nothing would be tried.
    assert not list(work.glob("*.checkpoint.pt")), f"checkpoints of an earlier run lie in {work}: delete {directory}"
    names_curve, curves = run(work, weights, SMOKE)
    # Three tokens, one, and three again; the round that begins with the first row's last guess is cut off.
    assert tokens_per_round(torch.tensor([[True, True, True, True], [False, True, True, True]]), 2) == 2.33
    assert names_curve[-1]["held_out_nats"] < names_curve[0]["held_out_nats"] - 0.5, names_curve
    curve = curves.pop(SMOKE.prefix + "heads")
    assert curve[-1]["training_loss"] < curve[0]["training_loss"], curve
    for name, curve in curves.items():
        assert curve[-1]["docs_nats"] < curve[0]["docs_nats"] - 0.1, (name, curve)
        assert curve[-1]["tales_nats"] < curve[0]["tales_nats"] - 0.2, (name, curve)
        shipped = name != SMOKE.prefix + CONTROL
        folder = (weights if shipped else work / "weights") / name
        assert load_exported(folder).config == FAMILY[name]
        Tokenizer.from_file(str(folder / "tokenizer.json"))
    print("smoke: every step works, losses fall, exported files load")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=RECIPE / "work", help="where corpora and checkpoints go")
    parser.add_argument("--weights", type=Path, default=MODELS / "weights", help="where models go")
    parser.add_argument("--smoke", type=Path, metavar="DIR", help="run everything tiny, into DIR")
    arguments = parser.parse_args()
    if arguments.smoke:
        smoke(arguments.smoke.resolve())
    else:
        run(arguments.work.resolve(), arguments.weights.resolve(), FULL)
