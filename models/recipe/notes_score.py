"""Does a model write the right notes, and answer from notes alone? On held-out worlds told in blocks.

A document is read once. Where every token of some notes is the likeliest one after those before it,
greedy decoding writes just these notes: no need to decode. Names and values one by one, each after what
is right before it, say what goes wrong otherwise.
"""

import re
from pathlib import Path

import numpy as np
import torch

from text import documents

FACT = re.compile(r"( \w+) is( \w+)")
QUESTION = re.compile(r"\nQuestion: What is the word of (\w+)\?\nAnswer: The word of \1 is( \w+)\.")


KINDS = ["notes", "notes_names", "notes_values", "answers_from_block_and_notes", "answers_from_notes_alone"]


def spans(text):
    """What to judge of a document, (kind, byte range of the text to predict): the notes of blocks that are
    there, whole and word by word, and the first answer about each name."""
    told, _, _ = text.partition("\nQuestion:")
    at, block, blocks = 0, "", []
    for line in told.split("\n"):
        start, at = at, at + len(line) + 1
        if not line.startswith("Notes:"):
            block = line
            blocks.append(block)
        elif block:
            block = ""
            yield "notes", (start + len("Notes:"), start + len(line))
            for fact in FACT.finditer(text, start, start + len(line)):
                yield "notes_names", fact.span(1)
                yield "notes_values", fact.span(2)
    asked = set()
    for question in QUESTION.finditer(text):
        name = question[1]
        if name not in asked:
            asked.add(name)
            there = any(f"word of {name} is" in block for block in blocks)
            yield "answers_from_block_and_notes" if there else "answers_from_notes_alone", question.span(2)


@torch.no_grad()
def notes_recall(model, corpus: Path, tokenizer, context=512, most_documents=128):
    """{what is judged: flags, one each time}: was every token of it the likeliest?"""
    right = {kind: [] for kind in KINDS}
    for number, (text, _) in enumerate(documents(corpus / "recall_notes_held_out.jsonl")):
        if number == most_documents:
            break
        encoding = tokenizer.encode(text)
        ids = torch.tensor(encoding.ids[:context])
        guesses = model(ids[None])[0].argmax(-1)
        # Generated text is ASCII: the tokenizer's character offsets are byte offsets.
        firsts = np.array([start for start, _ in encoding.offsets])
        for kind, (start, end) in spans(text):
            first, last = np.searchsorted(firsts, (start, end))
            if last <= len(ids):
                right[kind].append(bool((guesses[first - 1 : last - 1] == ids[first:last]).all()))
    return right
