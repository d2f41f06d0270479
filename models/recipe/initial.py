"""Where training starts: random numbers, and in the first two layers the outline of a circuit that
looks back.

Recall is an induction circuit (Olsson et al. 2022): one head notes at each position which tokens came
before it; a later head finds the position whose note matches and copies its token. Left to chance the
circuit appears only after millions of tokens. Here its outline is drawn beforehand, in the spirit of
mimetic initialisation (Trockman and Kolter 2023). Training is free to change every number of it.

In layer 0 the query heads of the first key head look 1, 2, 3, … positions back and note the token
there. In layer 1 those of the first key head look for positions whose token one back is the current
token, and those of the second for positions whose token two back is the token one back from here:
"The word of Ada is" finds "Ada is amber". Both copy what they find.
"""

import math

import torch
from torch import nn

# So many dimensions of every embedding start with one and the same value. What a head reads from them
# is the same at every position, so that only positions decide where it looks.
CONSTANT_DIMENSIONS = 16
# Embeddings start loud, so that many steps change them by little of what the circuit reads in them; the
# last norm starts quiet in return, since the same embeddings are the head.
EMBEDDING_DEVIATION = 0.5
LAST_NORM = 0.1
# How sharply outlined heads choose a position, and a match. More would be harder to unlearn.
POSITION_SHARPNESS = 7.0
MATCH_SHARPNESS = 2.8
# How loud a note is in the residual stream, beside the token's own embedding.
NOTE_LOUDNESS = 0.5


@torch.no_grad()
def initialize(model):
    config = model.config
    nn.init.constant_(model.model.norm.weight, LAST_NORM)
    for name, matrix in model.named_parameters():
        if matrix.dim() < 2:
            continue
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            # Nothing is added to the residual stream at first, so that the outline is heard.
            nn.init.zeros_(matrix)
        elif "embed_tokens" in name:
            nn.init.normal_(matrix, 0, EMBEDDING_DEVIATION)
            matrix[:, :CONSTANT_DIMENSIONS] = EMBEDDING_DEVIATION
        else:
            nn.init.normal_(matrix, 0, matrix.shape[1] ** -0.5)
    if config.num_hidden_layers < 2:
        return
    layers = model.model.layers
    read_token, read_notes = outline_notes(layers[0].self_attn, config)
    outline_copying(layers[1].self_attn, config, read_token, read_notes)


def outline_notes(attention, config):
    """Layer 0. Returns what reads the current token, and what reads each note, from a normed residual."""
    d, width = config.hidden_size, config.head_dim
    half = width // 2
    queries_per_key = config.num_attention_heads // config.num_key_value_heads
    turns = config.rope_theta ** (-torch.arange(half) / half)  # radians a position, pair by pair
    # A pair that hardly turns cannot tell neighbouring positions apart.
    strength = torch.where(turns > 0.02, POSITION_SHARPNESS / CONSTANT_DIMENSIONS, 0.0)

    def from_constant(cosines, sines):
        projection = torch.zeros(width, d)
        projection[:half, :CONSTANT_DIMENSIONS] = (strength * cosines)[:, None]
        projection[half:, :CONSTANT_DIMENSIONS] = (strength * sines)[:, None]
        return projection

    read_token = torch.randn(width, d) / math.sqrt(d)
    read_token[:, :CONSTANT_DIMENSIONS] = 0
    attention.k_proj.weight[:width] = from_constant(torch.ones(half), torch.zeros(half))
    attention.v_proj.weight[:width] = read_token
    read_notes = []
    for head in range(queries_per_key):
        angle = (head + 1) * turns
        rows = slice(head * width, (head + 1) * width)
        # Rotated on by `head + 1` positions less than the key, the query meets it head on there.
        attention.q_proj.weight[rows] = from_constant(torch.cos(angle), -torch.sin(angle))
        note = torch.randn(d, width) / math.sqrt(width)
        note[:CONSTANT_DIMENSIONS] = 0
        attention.o_proj.weight[:, rows] = note * EMBEDDING_DEVIATION * NOTE_LOUDNESS
        read_notes.append(note.T * 2 / (math.sqrt(d) * NOTE_LOUDNESS))
    return read_token, read_notes


def outline_copying(attention, config, read_token, read_notes):
    """Layer 1: one way of matching for each of the first two key heads; all their heads copy."""
    d, width, key_heads = config.hidden_size, config.head_dim, config.num_key_value_heads
    queries_per_key = config.num_attention_heads // key_heads
    half = width // 2
    turns = config.rope_theta ** (-torch.arange(half) / half)
    # Only pairs that turn by less than about three radians over the context compare contents.
    (slow,) = torch.where(torch.cat([turns, turns]) * config.max_position_embeddings < 3.2)
    # The norm makes each part of the residual stream quieter by all the others.
    scale = MATCH_SHARPNESS * math.sqrt(1 + len(read_notes) * NOTE_LOUDNESS**2)

    def on_slow_pairs(reader):
        projection = torch.zeros(width, d)
        projection[slow] = reader[: len(slow)] * scale
        return projection

    ways = [(read_token, read_notes[0])]
    if len(read_notes) > 1:
        ways.append((read_notes[0], read_notes[1]))
    for key_head, (query_reader, key_reader) in enumerate(ways[-key_heads:]):
        rows = slice(key_head * width, (key_head + 1) * width)
        attention.k_proj.weight[rows] = on_slow_pairs(key_reader)
        copy = torch.randn(width, d) / math.sqrt(d)
        copy[:, :CONSTANT_DIMENSIONS] = 0
        attention.v_proj.weight[rows] = copy
        for head in range(key_head * queries_per_key, (key_head + 1) * queries_per_key):
            rows = slice(head * width, (head + 1) * width)
            attention.q_proj.weight[rows] = on_slow_pairs(query_reader)
            attention.o_proj.weight[:, rows] = copy.T / queries_per_key
