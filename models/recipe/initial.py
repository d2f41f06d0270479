"""Where training starts: random numbers, and in two layers the outline of a circuit that looks back.

Recall is an induction circuit (Olsson et al. 2022): one head notes at each position which tokens came
before it; a later head finds the position whose note matches and copies its token. Left to chance the
circuit appears only after millions of tokens. Here its outline is drawn beforehand, in the spirit of
mimetic initialisation (Trockman and Kolter 2023). Training is free to change every number of it.

In layer 0 some query heads look 1, 2, 3, … positions back and note the token there. In a later layer
half of the heads look for positions whose token one back is the current token, the other half for
positions whose token two back is the token one back from here: "The word of Ada is" finds "Ada is amber".
Both copy what they find.

Where the parts go depends on the attention. Grouped queries: the heads of one key head take notes, those
of each of two key heads match, on rotary pairs that hardly turn. Windows: notes look only a few
positions back, so a windowed layer takes them; a match may be far away, so it needs a layer that sees
everything and has keys of its own. Normed queries and keys have one length, so their norms' weights
say how sharply they choose. A latent: positions go through the rotated dimensions, tokens and matches
through the latent, and no pair needs to be spared.
"""

import math

import torch
from torch import nn

from config import FULL, HybridConfig, LatentConfig

# So many dimensions of every embedding start with one and the same value. What a head reads from them
# is the same at every position, so that only positions decide where it looks.
CONSTANT_DIMENSIONS = 16
# Embeddings start loud, so that many steps change them by little of what the circuit reads in them; the
# last norm starts quiet in return, since the same embeddings are the head.
EMBEDDING_DEVIATION = 0.5
LAST_NORM = 0.1
# How sharply outlined heads choose, in logits: by how much they prefer a position to its neighbour, and a
# match to a position that has nothing in common with it. More would be harder to unlearn.
POSITION_LOGIT = 5.93
MATCH_LOGIT = 19.4
# How loud a note is in the residual stream, beside the token's own embedding. The fewer dimensions, the more
# of the token is heard in its notes, so that narrow models' notes are louder; too loud, they drown the token.
LOUDNESS_TIMES_WIDTH = 128
MOST_LOUDNESS = 2 / 3


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
    layers = [layer.self_attn for layer in model.model.layers]
    if isinstance(config, LatentConfig):
        latent_copying(layers[1], config, latent_notes(layers[0], config))
    else:
        grouped_copying(layers[copying_layer(config)], config, grouped_notes(layers[0], config))


def copying_layer(config):
    """The first layer after the notes that sees everything, through keys of its own."""
    if not isinstance(config, HybridConfig):
        return 1
    layers = zip(config.layer_types, config.kv_shared_with)
    return next(i for i, (seen, source) in enumerate(layers) if i > 0 and seen == FULL and source is None)


def token_reader(width, d):
    """[width, d]: a code of the token, out of a normed residual stream; what is constant is no part of it."""
    reader = torch.randn(width, d) / math.sqrt(d)
    reader[:, :CONSTANT_DIMENSIONS] = 0
    return reader


class Notes:
    """What the heads of layer 0 leave: at each position the codes of the tokens 1, 2, 3, … back."""

    def __init__(self, count, width, d):
        self.read_token = token_reader(width, d)
        self.notes = [torch.randn(d, width) / math.sqrt(width) for _ in range(count)]
        for note in self.notes:
            note[:CONSTANT_DIMENSIONS] = 0
        self.loudness = min(MOST_LOUDNESS, LOUDNESS_TIMES_WIDTH / d)
        # The norm makes each part of the residual stream quieter by all the others.
        self.norm = math.sqrt(1 + count * self.loudness**2)

    def write(self, i):
        """[d, width]: from the code of a token to the note that it came i + 1 positions ago."""
        return self.notes[i] * EMBEDDING_DEVIATION * self.loudness

    def read(self, i):
        """[width, d]: from a normed residual stream to the code in that note."""
        d, width = self.notes[i].shape
        return self.notes[i].T * width / (d * self.loudness)

    def matches(self):
        """(reader for the query, reader for the key): two ways in which positions match, if there are two notes."""
        ways = [(self.read_token, self.read(0))]
        if len(self.notes) > 1:
            ways.append((self.read(0), self.read(1)))
        return ways


def turns_of(config):
    """Radians a position, pair by pair."""
    half = config.head_dim // 2
    return config.rope_theta ** (-torch.arange(half) / half)


def from_constant(config, pairs, strength, positions_back):
    """[head_dim, d]: what a head reads to look so many positions back, and with 0 what it looks at.

    Rotated on by fewer positions than the key, the query meets it head on there.
    """
    angle = positions_back * turns_of(config)
    strength = torch.where(pairs, strength / CONSTANT_DIMENSIONS, 0.0)
    projection = torch.zeros(config.head_dim, config.hidden_size)
    cosines_and_sines = torch.cat([strength * torch.cos(angle), -strength * torch.sin(angle)])
    projection[:, :CONSTANT_DIMENSIONS] = cosines_and_sines[:, None]
    return projection


def unlike_the_neighbour(config, pairs):
    """How much less two vectors of length 1 in each of these pairs have in common one position further on."""
    return float((1 - torch.cos(turns_of(config)[pairs])).sum())


def grouped_notes(attention, config):
    """Layer 0: the query heads of the first key head take notes."""
    d, width, turns = config.hidden_size, config.head_dim, turns_of(config)
    # A pair that hardly turns cannot tell neighbouring positions apart.
    pairs = turns > 0.02
    if isinstance(config, HybridConfig):
        pairs = turns > math.tau / config.sliding_window
        gain = POSITION_LOGIT / (unlike_the_neighbour(config, pairs) / pairs.sum() * math.sqrt(width))
        for norm in (attention.q_norm, attention.k_norm):
            norm.weight[pairs.repeat(2)] = gain.sqrt()
    strength = math.sqrt(POSITION_LOGIT * math.sqrt(width) / unlike_the_neighbour(config, pairs))
    notes = Notes(config.num_attention_heads // config.num_key_value_heads, width, d)
    attention.k_proj.weight[:width] = from_constant(config, pairs, strength, 0)
    attention.v_proj.weight[:width] = notes.read_token
    for head in range(len(notes.notes)):
        rows = slice(head * width, (head + 1) * width)
        attention.q_proj.weight[rows] = from_constant(config, pairs, strength, head + 1)
        attention.o_proj.weight[:, rows] = notes.write(head)
    return notes


def grouped_copying(attention, config, notes):
    """A later layer: one way of matching for each of the first two key heads; all their heads copy."""
    d, width, key_heads = config.hidden_size, config.head_dim, config.num_key_value_heads
    queries_per_key = config.num_attention_heads // key_heads
    # Only pairs that turn by less than about three radians over the context compare contents.
    slow = (turns_of(config) * config.max_position_embeddings < 3.2).repeat(2)
    if isinstance(config, HybridConfig):
        for norm in (attention.q_norm, attention.k_norm):
            norm.weight[slow] = math.sqrt(MATCH_LOGIT / math.sqrt(width))
    scale = math.sqrt(MATCH_LOGIT * math.sqrt(width) / slow.sum()) * notes.norm

    def on_slow_pairs(reader):
        projection = torch.zeros(width, d)
        projection[slow] = reader[: slow.sum()] * scale
        return projection

    for key_head, (query_reader, key_reader) in enumerate(notes.matches()[-key_heads:]):
        rows = slice(key_head * width, (key_head + 1) * width)
        attention.k_proj.weight[rows] = on_slow_pairs(key_reader)
        copy = token_reader(width, d)
        attention.v_proj.weight[rows] = copy
        for head in range(key_head * queries_per_key, (key_head + 1) * queries_per_key):
            rows = slice(head * width, (head + 1) * width)
            attention.q_proj.weight[rows] = on_slow_pairs(query_reader)
            attention.o_proj.weight[:, rows] = copy.T / queries_per_key


def by_head(attention, config):
    """Views of the matrices of latent attention: (q [heads, nope + rope, d], keys from the latent [heads, nope,
    rank], values from it [heads, v, rank], output [d, heads, v])."""
    heads, nope = config.num_attention_heads, config.qk_nope_head_dim
    from_latent = attention.kv_b_proj.weight.unflatten(0, (heads, -1))
    return (
        attention.q_proj.weight.unflatten(0, (heads, -1)),
        from_latent[:, :nope],
        from_latent[:, nope:],
        attention.o_proj.weight.unflatten(1, (heads, -1)),
    )


def latent_notes(attention, config):
    """Layer 0: half of the heads take notes. All heads share the rotated key, so only positions are in it."""
    q, _, values, output = by_head(attention, config)
    nope, rank, width = config.qk_nope_head_dim, config.kv_lora_rank, config.v_head_dim
    pairs = turns_of(config) > 0.02
    scale = math.sqrt(nope + config.qk_rope_head_dim)
    strength = math.sqrt(POSITION_LOGIT * scale / unlike_the_neighbour(config, pairs))

    def interleaved(projection):  # as DeepSeek stores it: the two of a pair side by side
        return torch.stack(projection.chunk(2), dim=1).flatten(0, 1)

    notes = Notes(config.num_attention_heads // 2, width, config.hidden_size)
    attention.kv_a_proj_with_mqa.weight[:width] = notes.read_token
    attention.kv_a_proj_with_mqa.weight[rank:] = interleaved(from_constant(config, pairs, strength, 0))
    for head in range(len(notes.notes)):
        q[head, :nope] = 0
        q[head, nope:] = interleaved(from_constant(config, pairs, strength, head + 1))
        values[head] = torch.eye(width, rank)
        output[:, head] = notes.write(head)
    return notes


def latent_copying(attention, config, notes):
    """Layer 1: the latent holds what is copied and the code of each way of matching, a share of it each."""
    q, keys, values, output = by_head(attention, config)
    heads, rank, width = config.num_attention_heads, config.kv_lora_rank, config.v_head_dim
    ways = notes.matches()
    code = (rank - width) // len(ways)
    strength = math.sqrt(MATCH_LOGIT * math.sqrt(config.qk_nope_head_dim + config.qk_rope_head_dim) / code)
    copy = token_reader(width, config.hidden_size)
    attention.kv_a_proj_with_mqa.weight[:width] = copy
    q[:], keys[:] = 0, 0
    for way, (query_reader, key_reader) in enumerate(ways):
        part = slice(width + way * code, width + (way + 1) * code)
        attention.kv_a_proj_with_mqa.weight[part] = key_reader[:code] * notes.norm
        for head in range(way * heads // len(ways), (way + 1) * heads // len(ways)):
            q[head, :code] = query_reader[:code] * strength * notes.norm
            keys[head, :code, part] = torch.eye(code) * strength
            values[head] = torch.eye(width, rank)
            output[:, head] = copy.T * len(ways) / heads
