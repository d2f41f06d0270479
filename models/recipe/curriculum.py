"""What a model reads, and when: stages of the run, their mixtures of texts, and windows drawn from them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from text import ANSWER_WEIGHT, Tokens

TOKENS_PER_STEP = 2048


@dataclass(frozen=True)
class Stage:
    """A part of the run, up to a fraction of its tokens, with its window and its mixture of texts."""

    until: float
    context: int
    mix: dict


# Recall comes from one habit: find the same name earlier, copy what followed. Lists and questions near
# their facts teach it first, in half of the windows; questions far from their facts and notes come later.
CURRICULUM = [
    Stage(0.057, 256, dict(docs=0.35, tales=0.10, chat=0.05, recall_list=0.20, recall_near=0.30)),
    Stage(0.229, 512, dict(docs=0.42, tales=0.12, chat=0.06, recall_list=0.06, recall_near=0.17, recall_far=0.17)),
    Stage(1.00, 512, dict(docs=0.54, tales=0.15, chat=0.10, recall_list=0.02, recall_near=0.07, recall_far=0.07, recall_notes=0.05)),
]
# The variants read a fifth as much (FULL in run.py). The first two stages, which teach recall, have a larger
# share of it, so they shrink less, to about a third: from 1.0 M and 3.0 M tokens to 0.35 M and 0.9 M. All
# variants read the same, so that they can be compared.
SHORTER = [Stage(until, stage.context, stage.mix) for until, stage in zip((0.10, 0.35, 1.00), CURRICULUM)]
# A student meets the mixture that its teacher ended with.
DISTILLATION = [CURRICULUM[-1]]


def stages_of(name, has_teacher):
    if has_teacher:
        return DISTILLATION
    return CURRICULUM if name.endswith("target") else SHORTER


class Batches:
    """Random windows of the training texts."""

    def __init__(self, work: Path, generator):
        names = {name for stage in CURRICULUM for name in stage.mix}
        self.texts = {name: Tokens.load(work / f"tokens/{name}.npz") for name in sorted(names)}
        self.generator = generator

    def draw(self, stage):
        """(ids [windows, context + 1], loss weights [windows, context])."""
        windows = TOKENS_PER_STEP // stage.context
        names, shares = list(stage.mix), torch.tensor(list(stage.mix.values()))
        chosen = torch.multinomial(shares, windows, replacement=True, generator=self.generator)
        ids, weights = [], []
        for name in (names[i] for i in chosen.tolist()):
            text = self.texts[name]
            last = len(text.ids) - stage.context - 1
            if name == "docs":
                at = self.below(last)
            else:
                # Generated text is read from a document's beginning: a question whose fact lies
                # before the window would teach guessing.
                usable = np.searchsorted(text.starts, last)
                at = int(text.starts[self.below(usable)])
            ids.append(text.ids[at : at + stage.context + 1].astype(np.int64))
            weights.append(1 + (ANSWER_WEIGHT - 1) * text.is_answer[at + 1 : at + stage.context + 1])
        return torch.from_numpy(np.stack(ids)), torch.from_numpy(np.stack(weights)).float()

    def below(self, end):
        return int(torch.randint(int(end), (1,), generator=self.generator))
