"""From text to what training reads: the tokenizer, and token files with weights and beginnings."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
SPECIAL_TOKENS = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
END_OF_TEXT = 0

# Without more weight the few tokens of an answer drown among those that fluency needs, and recall
# does not come.
ANSWER_WEIGHT = 5.0


def documents(path: Path):
    """The documents of a JSON-lines file of the corpus, as (text, answer ranges)."""
    with open(path) as lines:
        for line in lines:
            document = json.loads(line)
            yield document["text"], document["answers"]


def train_tokenizer(docs, corpus: Path, characters_of_each=600_000):
    """A byte-level BPE with digits split, in which every name and value of recall is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = (corpus / "words.txt").read_text().split()

    def training_text():
        yield from docs
        for name in ("tales", "chat", "recall_near"):
            characters = 0
            for text, _ in documents(corpus / f"{name}.jsonl"):
                yield text
                characters += len(text)
                if characters > characters_of_each:
                    break
        # Frequency is what makes a word one token: these are as frequent as a common word.
        yield from ("".join(f" {word}" for word in words) for _ in range(2_000))

    tokenizer.train_from_iterator(training_text(), trainer)
    split = [word for word in words if len(tokenizer.encode(f" {word}").ids) != 1]
    assert not split, f"not one token each: {split}"
    return tokenizer


@dataclass
class Tokens:
    """Documents one after the other, each ended by <|endoftext|>."""

    ids: np.ndarray  # uint16
    is_answer: np.ndarray  # bool: does this token answer a question?
    starts: np.ndarray  # int64: where each document begins

    def save(self, path: Path):
        np.savez(path, ids=self.ids, is_answer=self.is_answer, starts=self.starts)

    @staticmethod
    def load(path: Path):
        arrays = np.load(path)
        return Tokens(arrays["ids"], arrays["is_answer"], arrays["starts"])


def encode(tokenizer, texts_with_answers) -> Tokens:
    texts, answers = zip(*texts_with_answers)
    ids, is_answer, starts = [], [], [0]
    for encoding, ranges in zip(tokenizer.encode_batch(list(texts)), answers):
        marks = np.zeros(len(encoding.ids) + 1, dtype=bool)
        if ranges:
            # Generated text is ASCII, so that the tokenizer's character offsets are byte offsets.
            first_bytes = np.array([start for start, _ in encoding.offsets])
            for start, end in ranges:
                marks[np.searchsorted(first_bytes, start) : np.searchsorted(first_bytes, end)] = True
        ids.append(np.array(encoding.ids + [END_OF_TEXT], dtype=np.uint16))
        is_answer.append(marks)
        starts.append(starts[-1] + len(marks))
    return Tokens(np.concatenate(ids), np.concatenate(is_answer), np.array(starts[:-1], dtype=np.int64))
