"""The whole of it on one page: learn tokens from a text, train a decoder on them, and let it write.

    python -m pellucid.plain TEXT.txt

It needs nothing but PyTorch. The rest of the package computes the same with more choices, speed and care, and tests
hold the two equal. Each part names its equation in docs/equations.md.

The last letters of a tensor's name are its axes: B sequences in a batch, T positions (S for keys), D numbers per
position, H heads of K = D/H numbers each, V tokens in the vocabulary, C candidates for the next token. Matrices have
the names of the papers instead: W_Q, W_K and W_V make queries, keys and values, W_O the output.
"""

import math
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

# ---- The sizes: a minute of training on two cores ----
N_MERGES = 512  # tokens beyond the 256 bytes
CONTEXT, D_MODEL, N_HEADS, N_LAYERS = 128, 128, 4, 2  # the model sees CONTEXT tokens at once
BATCH, N_STEPS, WARMUP = 16, 1000, 50  # N_STEPS steps of BATCH rows; in the first WARMUP the learning rate rises
PEAK_RATE, BETAS, WEIGHT_DECAY, MAX_GRADIENT_NORM = 4e-3, (0.9, 0.95), 0.1, 1.0  # BETAS: how long AdamW remembers
TOP_K, TEMPERATURE = 50, 0.8

# ---- From text to tokens: byte-pair encoding (equation 1) ----
Pair = tuple[int, int]
# Token i < 256 is the byte BYTES[i]. As in GPT-2, those that print as a visible character come first: 0 is "!".
BYTES = bytes(sorted(range(256), key=lambda byte: not chr(byte).isprintable() or byte == ord(" ")))
# "'s" and its like; letters, digits or other signs, with a space before them if there is one; other white space.
WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)


def split_into_words(text: str) -> list[str]:
    """A text in words, as in GPT-2: " fox", ",", " 12", "'s". No token reaches from one word into the next."""
    return [text[m.start() : m.end()] for m in WORD.finditer("".join(map(ascii_like, text)))]


def ascii_like(character: str) -> str:
    """One ASCII character of the same kind, so that WORD finds the letters and digits of every script."""
    if character.isascii():
        return character
    kind = unicodedata.category(character)[0]
    return "a" if kind == "L" else "0" if kind == "N" else "\n" if character.isspace() else "!"


def merge(ids: list[int], pair: Pair, new_id: int) -> list[int]:
    """The ids with each occurrence of the pair replaced by the new id, from left to right."""
    merged: list[int] = []
    for i in ids:
        if merged and (merged[-1], i) == pair:
            merged[-1] = new_id
        else:
            merged.append(i)
    return merged


def learn_merges(text: str, n_merges: int) -> dict[Pair, int]:
    """Merge the most frequent pair of neighbours into a new token, again and again: {pair: new id}, in order."""
    frequency = Counter(split_into_words(text))
    words = {word: list(map(BYTES.index, word.encode())) for word in frequency}
    counts: Counter[Pair] = Counter()
    places: dict[Pair, set[str]] = defaultdict(set)  # the words that contain a pair, or did once

    def count(word: str, sign: int) -> None:
        for pair in pairwise(words[word]):
            counts[pair] += sign * frequency[word]
            places[pair].add(word)

    for word in words:
        count(word, +1)
    merges: dict[Pair, int] = {}
    while len(merges) < n_merges and counts:
        best = min(counts, key=lambda pair: (-counts[pair], pair))  # of equally frequent pairs, the smallest ids
        if counts[best] < 2:
            break
        merges[best] = 256 + len(merges)
        for word in list(places[best]):  # only these words change
            count(word, -1)
            words[word] = merge(words[word], best, merges[best])
            count(word, +1)
    return merges


def encode(text: str, merges: dict[Pair, int]) -> list[int]:
    """The token ids of a text: in each word, every learned merge in its order."""
    ids_of: dict[str, list[int]] = {}
    for word in (words := split_into_words(text)):
        if word not in ids_of:
            ids = list(map(BYTES.index, word.encode()))
            while possible := [pair for pair in pairwise(ids) if pair in merges]:
                earliest = min(possible, key=merges.__getitem__)
                ids = merge(ids, earliest, merges[earliest])
            ids_of[word] = ids
    return [i for word in words for i in ids_of[word]]


def decode(ids: list[int], merges: dict[Pair, int]) -> str:
    """The text of token ids; an incomplete character becomes the sign U+FFFD."""
    spelling = [bytes([byte]) for byte in BYTES]
    for left, right in merges:  # in their order, so both parts are known
        spelling.append(spelling[left] + spelling[right])
    return b"".join(spelling[i] for i in ids).decode(errors="replace")


# ---- The decoder: a score for every possible next token (equations 2 and 45) ----


def rotate(x_BHTK: Tensor) -> Tensor:
    """Turn queries or keys by their position: RoPE (equation 5).

    Coordinates i and i + K/2 are the tip of a clock's hand, and each clock runs slower than the one before. The product
    of a query and a key then depends on how far apart they stand, not on where.
    """
    T, K = x_BHTK.shape[-2:]
    speeds = 10_000.0 ** (-torch.arange(0.0, K, 2) / K)
    angles = torch.outer(torch.arange(float(T)), speeds)  # (T, K/2)
    cos, sin = angles.cos().to(x_BHTK.dtype), angles.sin().to(x_BHTK.dtype)
    a, b = x_BHTK.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    """Each position gathers what it needs from itself and the positions before it (equations 7, 8 and 9)."""

    def __init__(self) -> None:
        super().__init__()
        self.W_Q = nn.Linear(D_MODEL, D_MODEL, bias=False)  # what a position looks for
        self.W_K = nn.Linear(D_MODEL, D_MODEL, bias=False)  # what it offers to be found by
        self.W_V = nn.Linear(D_MODEL, D_MODEL, bias=False)  # what it then hands over
        self.W_O = nn.Linear(D_MODEL, D_MODEL, bias=False)  # from what the heads have gathered to what is added to x
        # At first a block adds nothing, which keeps the first steps calm. The gradient of W_O is not 0, so it learns.
        nn.init.zeros_(self.W_O.weight)

    def forward(self, x_BTD: Tensor) -> Tensor:
        # Cut into heads, (B, T, D) -> (B, T, H, K), and move the heads forward: (B, H, T, K).
        q, k, v = (W(x_BTD).unflatten(-1, (N_HEADS, -1)).transpose(1, 2) for W in (self.W_Q, self.W_K, self.W_V))
        # .mT exchanges the last two axes: (B, H, T, K) times (B, H, K, S) is the product of each query with each key.
        scores_BHTS = rotate(q) @ rotate(k).mT / math.sqrt(q.size(-1))
        in_the_future = torch.ones_like(scores_BHTS, dtype=torch.bool).triu(diagonal=1)
        weights_BHTS = scores_BHTS.masked_fill(in_the_future, -math.inf).softmax(dim=-1)
        heads_BHTK = weights_BHTS @ v
        return self.W_O(heads_BHTK.transpose(1, 2).flatten(start_dim=2))


class FeedForward(nn.Module):
    """At every position alone: widen, max(0, u)^2, narrow again (equation 11, without biases)."""

    def __init__(self) -> None:
        super().__init__()
        self.W_1 = nn.Linear(D_MODEL, 4 * D_MODEL, bias=False)
        self.W_2 = nn.Linear(4 * D_MODEL, D_MODEL, bias=False)
        nn.init.zeros_(self.W_2.weight)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.W_2(self.W_1(x_BTD).relu().square())


class Block(nn.Module):
    """Attention, then feed-forward. Each reads a normalised x and adds to x: pre-norm (equation 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(D_MODEL, bias=False)
        self.attention = Attention()
        self.feed_forward_norm = nn.LayerNorm(D_MODEL, bias=False)
        self.feed_forward = FeedForward()

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))


class Decoder(nn.Module):
    """Tokens in, logits out; those at position t depend on tokens 0 ... t alone."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding_VD = nn.Parameter(torch.randn(vocab_size, D_MODEL) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYERS))
        self.final_norm = nn.LayerNorm(D_MODEL, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.embedding_VD[tokens_BT]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.final_norm(x_BTD) @ self.embedding_VD.T  # tied: the embedding, once more (equation 3)


def loss(model: Decoder, rows: Tensor) -> Tensor:
    """Cross-entropy: the mean of -ln p(true next token), in nats, the unit of ln (equation 2). A row: T + 1 tokens."""
    inputs_BT, targets_BT = rows[:, :-1], rows[:, 1:]
    log_p_BTV = model(inputs_BT).log_softmax(dim=-1)
    return -log_p_BTV.gather(-1, targets_BT[..., None]).mean()  # gather: of the V numbers, the target's


# ---- Training: a small step against the gradient, many times ----


def clip(gradients: tuple[Tensor, ...]) -> list[Tensor]:
    """The gradients, scaled so that as one long vector they are no longer than MAX_GRADIENT_NORM (equation 27)."""
    norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
    return [g * min(1.0, MAX_GRADIENT_NORM / (norm + 1e-6)) for g in gradients]


class AdamW:
    """Steps of about the same size for every parameter, however large its gradient (equations 15 and 28)."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.means = [torch.zeros_like(p) for p in parameters]  # running mean of the gradient
        self.squares = [torch.zeros_like(p) for p in parameters]  # and of its square
        self.n_steps = 0

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: float) -> None:
        self.n_steps += 1
        for p, g, mean, square in zip(self.parameters, gradients, self.means, self.squares, strict=True):
            mean += (1 - BETAS[0]) * (g - mean)
            square += (1 - BETAS[1]) * (g.square() - square)
            unbiased_mean = mean / (1 - BETAS[0] ** self.n_steps)  # both means began at 0
            unbiased_square = square / (1 - BETAS[1] ** self.n_steps)
            if p.ndim == 2:  # matrices decay; a norm's gain has no reason to be small
                p *= 1 - rate * WEIGHT_DECAY
            p -= rate * unbiased_mean / (unbiased_square.sqrt() + 1e-8)


def learning_rate(step: int) -> float:
    """It rises in a straight line to its peak, then falls along a cosine to zero (equation 26)."""
    fall = max(0, step - WARMUP) / (N_STEPS - 1 - WARMUP)  # from 0 to 1
    return PEAK_RATE * min(1, (step + 1) / (WARMUP + 1)) * (1 + math.cos(math.pi * fall)) / 2


def train(model: Decoder, tokens: Tensor) -> None:
    """N_STEPS updates, each on BATCH rows that begin anywhere in the text."""
    parameters: list[Tensor] = list(model.parameters())
    optimizer = AdamW(parameters)
    for step in range(N_STEPS):
        starts = torch.randint(len(tokens) - CONTEXT, (BATCH,)).tolist()
        nats = loss(model, torch.stack([tokens[start : start + CONTEXT + 1] for start in starts]))
        gradients = torch.autograd.grad(nats, parameters)
        optimizer.step(clip(gradients), learning_rate(step))
        if step % 100 == 0:
            print(f"step {step:4d} of {N_STEPS}: {nats.item():.2f} nats per token", flush=True)


# ---- Writing: draw the next token, append it, and ask again (equations 19 and 20) ----


@torch.no_grad()
def write(model: Decoder, ids: list[int], n_tokens: int, random: torch.Generator) -> list[int]:
    """The ids, continued by n_tokens, each drawn from the TOP_K likeliest. A TEMPERATURE < 1 favours likely ones."""
    for _ in range(n_tokens):
        logits_V = model(torch.tensor([ids[-CONTEXT:]]))[0, -1]
        logits_C, candidates_C = logits_V.topk(min(TOP_K, len(logits_V)))
        # The candidates lie side by side on a line, each as long as it is likely. A random point hits one of them.
        ends_C = (logits_C / TEMPERATURE).softmax(dim=-1).cumsum(dim=-1)
        point = ends_C[-1] * torch.rand((), generator=random)
        ids = [*ids, int(candidates_C[(ends_C <= point).sum()])]
    return ids


def nats_of_counted_pairs(train_ids: list[int], test_ids: list[int], vocab_size: int) -> float:
    """Loss in nats per token of a bigram: p(b | a) = (count(a, b) + 1/V) / (count(a) + 1) (equation 33)."""
    pairs, firsts = Counter(pairwise(train_ids)), Counter(train_ids[:-1])
    surprises = [math.log((firsts[a] + 1) / (pairs[a, b] + 1 / vocab_size)) for a, b in pairwise(test_ids)]
    return sum(surprises) / len(surprises)


def main() -> None:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.exit("usage: python -m pellucid.plain TEXT.txt")
    text = Path(sys.argv[1]).read_text(encoding="utf-8-sig", errors="replace")
    merges = learn_merges(text, N_MERGES)
    ids = encode(text, merges)
    vocab_size = 256 + len(merges)
    n_train = len(ids) * 9 // 10
    n_rows = min(64, (len(ids) - n_train - 1) // CONTEXT)  # for the test
    if n_rows < 1:
        sys.exit(f"error: {sys.argv[1]}: too short; give a text of at least {10 * CONTEXT + 10:,} tokens")
    train_ids, test_ids = ids[:n_train], ids[n_train:][: n_rows * CONTEXT + 1]
    print(f"{len(text):,} characters are {len(ids):,} tokens; the last tenth is for the test")
    torch.manual_seed(0)
    model = Decoder(vocab_size)
    train(model, torch.tensor(train_ids))

    with torch.no_grad():  # each row begins with the last token of the one before
        rows = torch.tensor(test_ids).unfold(0, CONTEXT + 1, CONTEXT)
        print(f"on text that it has not seen: {loss(model, rows).item():.2f} nats per token", end=", ")
    print(f"a table of counted pairs has {nats_of_counted_pairs(train_ids, test_ids, vocab_size):.2f}\n")
    print(decode(write(model, encode("\n", merges), 200, torch.Generator().manual_seed(0)), merges))


if __name__ == "__main__":
    main()
