"""Exact-match recall: how many held-out questions get the one right token as the likeliest next one."""

import json
from pathlib import Path

import torch


def load_questions(path: Path, tokenizer, context=512):
    """[(prompt ids, answer id, the line's fields)] for each question that fits the context."""
    questions = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        ids = tokenizer.encode(fields["prompt"]).ids
        (answer,) = tokenizer.encode(fields["answer"]).ids
        if len(ids) <= context:
            questions.append((ids, answer, fields))
    return questions


@torch.no_grad()
def answered(model, questions, batch=16):
    """For each question, whether the model's likeliest next token is the answer."""
    # Questions of like length share a batch, so that little is computed on padding.
    by_length = sorted(range(len(questions)), key=lambda i: len(questions[i][0]))
    right = [False] * len(questions)
    for first in range(0, len(by_length), batch):
        rows = by_length[first : first + batch]
        lengths = torch.tensor([len(questions[i][0]) for i in rows])
        tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for row, i in enumerate(rows):
            tokens[row, : lengths[row]] = torch.tensor(questions[i][0])
        # Padding comes after the prompt, where causal attention keeps it from mattering.
        last = model.hidden(tokens)[torch.arange(len(rows)), lengths - 1]
        guesses = (last @ model.model.embed_tokens.weight.T).argmax(-1)
        for i, guess in zip(rows, guesses.tolist()):
            right[i] = guess == questions[i][1]
    return right
