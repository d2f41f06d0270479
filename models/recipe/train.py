"""Train one model of the family: `python train.py NAME --work DIR --tokens N`.

Resumes from the checkpoint in the work folder when there is one, with the random state it had, so
that an interrupted run ends where an uninterrupted one would; SIGTERM saves one and stops. Given
another number of tokens it resumes too: from there on the schedule is that of the new total.
"""

import argparse
import copy
import csv
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from config import FAMILY
from curriculum import Batches, stages_of
from export import export
from model import LanguageModel
from muon import Muon
from recall_score import answered, load_questions
from text import Tokens

# Each thread takes its share of a batch from end to end, so that threads wait for each other once a
# step and not in every operation: that is what makes training fast on a machine that does other work.
THREADS = 2
MUON_RATE = 0.006  # for matrices
ADAM_RATE = 1.2e-3  # for the embedding and the norms
# Rates begin low: the circuit that initial.py outlines is finished within the first hundred steps, but
# only if large steps do not wash it away before.
FIRST_RATE = 0.35  # as a share of the full rate
WARM_UP_STEPS = 100
DECAY_FRACTION = 0.4  # the learning rate is constant, then falls to nothing over this last part
DISTILLED = 0.9  # a student's share of loss that is distance from its teacher; the rest is the text's
# A draft's token is refused as often as its and its target's probabilities differ in all: their total
# variation. It is what counts, so most of the distance; but it hardly says where to go from afar, as
# divergence does (Zhou et al. 2024, DistillSpec, compare both).
DIVERGENCE, VARIATION = 0.3, 2.0
EVALUATE_EVERY = 250  # steps


@torch.no_grad()
def held_out_loss(model, text: Tokens, tokens, context=512, batch=8):
    """Mean nats a token over the first `tokens` of a text, in windows one after the other."""
    ids = torch.from_numpy(text.ids.astype(np.int64))
    windows = min(tokens, len(ids) - 1) // context
    total = 0.0
    for first in range(0, windows, batch):
        rows = [ids[w * context : (w + 1) * context + 1] for w in range(first, min(first + batch, windows))]
        rows = torch.stack(rows)
        logits = model(rows[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum").item()
    return total / (windows * context)


def loss_of(logits, targets, weights, teacher_logits=None):
    """The weighted sum over tokens of the loss: the text's, or mostly the distance from the teacher."""
    logits = logits.flatten(0, 1)
    loss = F.cross_entropy(logits, targets.flatten(), reduction="none")
    if teacher_logits is not None:
        log_q, log_p = F.log_softmax(logits, -1), F.log_softmax(teacher_logits.flatten(0, 1), -1)
        p = log_p.exp()
        divergence = (p * (log_p - log_q)).sum(-1)
        variation = (p - log_q.exp()).abs().sum(-1) / 2
        distance = DIVERGENCE * divergence + VARIATION * variation
        loss = DISTILLED * distance + (1 - DISTILLED) * loss
    return (loss * weights.flatten()).sum()


class Run:
    """One model's training, as it is saved and resumed."""

    # Parts of names of matrices that AdamW trains, not Muon.
    not_for_muon = ("embed",)

    def __init__(self, name, work: Path, total_tokens, teacher=None, evaluate_every=EVALUATE_EVERY, questions=56, model=None):
        torch.manual_seed(0)
        self.name, self.work, self.total_tokens, self.teacher = name, work, total_tokens, teacher
        self.evaluate_every = evaluate_every
        self.stages = stages_of(name, teacher is not None)
        self.model = LanguageModel(FAMILY[name]) if model is None else model
        parameters = list(self.model.named_parameters())
        for_muon = {n for n, p in parameters if p.dim() == 2 and not any(part in n for part in self.not_for_muon)}
        matrices = [p for n, p in parameters if n in for_muon]
        rest = [p for n, p in parameters if n not in for_muon]
        self.optimizers = [Muon(matrices[i::THREADS], lr=MUON_RATE) for i in range(THREADS)]
        self.optimizers.append(torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0))
        self.full_rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        # One thread a share: each must not start threads of its own.
        self.pool = ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,))
        self.replicas = [copy.deepcopy(self.model) for _ in range(THREADS)]
        for replica in self.replicas:  # gradients of its own, the model's own numbers
            for theirs, ours in zip(replica.parameters(), self.model.parameters()):
                theirs.data = ours.data
        self.generator = torch.Generator().manual_seed(1)
        self.batches = Batches(work, self.generator)
        self.held_out = {n: Tokens.load(work / f"tokens/{n}_held_out.npz") for n in ("docs", "tales")}
        tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
        self.questions = load_questions(work / "corpus/recall_questions.jsonl", tokenizer)[:questions]
        self.step, self.tokens, self.seconds, self.curve = 0, 0, 0.0, []
        self.losses = []  # since the last evaluation
        self.checkpoint = work / f"{name}.checkpoint.pt"
        if self.checkpoint.exists():
            self.resume()

    def save(self):
        state = dict(
            model=self.model.state_dict(),
            optimizers=[optimizer.state_dict() for optimizer in self.optimizers],
            generator=self.generator.get_state(),
            progress=(self.step, self.tokens, self.seconds, self.curve),
            losses=self.losses,
        )
        # Written beside and moved: an interruption leaves the old checkpoint whole.
        torch.save(state, self.checkpoint.with_suffix(".new"))
        os.replace(self.checkpoint.with_suffix(".new"), self.checkpoint)

    def resume(self):
        state = torch.load(self.checkpoint)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.generator.set_state(state["generator"])
        self.step, self.tokens, self.seconds, self.curve = state["progress"]
        self.losses = state["losses"]

    def train_step(self):
        """One update; returns the batch's loss."""
        fraction = self.tokens / self.total_tokens
        warm = FIRST_RATE + (1 - FIRST_RATE) * self.step / WARM_UP_STEPS
        rate = min(1, warm, (1 - fraction) / DECAY_FRACTION)
        for optimizer, full_rate in zip(self.optimizers, self.full_rates):
            optimizer.param_groups[0]["lr"] = rate * full_rate
        stage = next(stage for stage in self.stages if fraction < stage.until)
        ids, weights = self.batches.draw(stage)
        weights /= weights.sum()
        shares = zip(self.replicas, ids.chunk(THREADS), weights.chunk(THREADS))
        loss = sum(self.pool.map(lambda share: self.backward(*share), shares))
        for ours, *theirs in zip(self.model.parameters(), *(r.parameters() for r in self.replicas)):
            ours.grad = sum(p.grad for p in theirs)
        list(self.pool.map(lambda optimizer: optimizer.step(), self.optimizers))
        self.step += 1
        self.tokens += weights.numel()
        return loss

    def backward(self, replica, ids, weights):
        """Leaves the gradients of one thread's share in its replica and returns its part of the loss."""
        replica.zero_grad(set_to_none=True)
        teacher_logits = None
        if self.teacher is not None:
            with torch.no_grad():
                teacher_logits = self.teacher(ids[:, :-1])
        loss = loss_of(replica(ids[:, :-1]), ids[:, 1:], weights, teacher_logits)
        loss.backward()
        return loss.item()

    def figures(self):
        """What is worth watching: held-out losses and recall."""
        row = {}
        for name, text in self.held_out.items():
            row[f"{name}_nats"] = round(held_out_loss(self.model, text, tokens=16_384), 4)
        right = answered(self.model, self.questions)
        row["recall"] = round(sum(right) / len(right), 4)
        return row

    def evaluate(self, training_loss):
        row = dict(step=self.step, tokens=self.tokens, seconds=round(self.seconds))
        row["training_loss"] = round(training_loss, 4)
        row.update(self.figures())
        self.curve.append(row)
        rate = self.tokens / max(self.seconds, 1)
        left = (self.total_tokens - self.tokens) / rate / 60
        print(f"{self.name} {row} {rate:.0f} tokens/s, {left:.0f} min left", flush=True)

    def write_curve_to(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, self.curve[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.curve)

    def train(self):
        stopping = []
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
        started = time.time()
        while self.tokens < self.total_tokens:
            self.losses.append(self.train_step())
            if self.step % self.evaluate_every == 0 or self.tokens >= self.total_tokens:
                # Evaluation is no part of the training time.
                self.seconds += time.time() - started
                self.evaluate(sum(self.losses) / len(self.losses))
                self.losses = []
                self.save()
                started = time.time()
            if stopping:
                self.seconds += time.time() - started
                self.save()
                raise SystemExit(f"{self.name}: stopped and saved after {self.tokens} tokens")
        return self.model


def train_and_export(name, work: Path, weights: Path, tokens, evaluate_every=EVALUATE_EVERY, teacher=None):
    """Trains a model and puts it, with its curve, into a folder of its name; returns the curve."""
    run = Run(name, work, tokens, teacher, evaluate_every)
    run.train()
    run.write_curve_to(weights / name / "loss.csv")
    export(run.model, work / "tokenizer.json", weights / name)
    return run.curve


def load_model(name, work: Path):
    """A model as its checkpoint has it."""
    model = LanguageModel(FAMILY[name])
    model.load_state_dict(torch.load(work / f"{name}.checkpoint.pt")["model"])
    return model.eval()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=FAMILY)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tokens", type=float, required=True)
    parser.add_argument("--teacher", choices=FAMILY)
    parser.add_argument("--weights", type=Path, default=Path(__file__).parents[1] / "weights", help="where models go")
    arguments = parser.parse_args()
    teacher = load_model(arguments.teacher, arguments.work) if arguments.teacher else None
    train_and_export(arguments.name, arguments.work, arguments.weights, int(arguments.tokens), teacher=teacher)
