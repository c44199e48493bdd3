"""A language so small that all of its answers can be listed, and a model of it with a number for every prefix."""

from itertools import product

import torch
import torch.nn.functional as F
from torch import nn

from pellucid.data.batches import IGNORE_INDEX
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.policy import log_probabilities

A, B, END = range(3)
PROMPTS = ((A,), (B,))
MOST_TOKENS = 3  # of an answer, its END included; what has not ended by then is cut off
WIDTH = 1 + MOST_TOKENS  # of a prompt and an answer


def all_answers():
    """The 15 answers: END, A END, B END, and three tokens of which the first two are not END."""
    short = [(*begin, END) for n in range(MOST_TOKENS - 1) for begin in product((A, B), repeat=n)]
    return short + [(*begin, last) for begin in product((A, B), repeat=MOST_TOKENS - 1) for last in range(3)]


def rows_of(prompt, answers):
    """Inputs and targets of the answers to a prompt, padded with END: (N, T) each. The last token is an input too."""
    inputs = [(*prompt, *answer, *[END] * (WIDTH - 1 - len(answer))) for answer in answers]
    ignored = [IGNORE_INDEX]
    targets = [[*ignored * (len(prompt) - 1), *answer, *ignored * (WIDTH - len(answer))] for answer in answers]
    return torch.tensor(inputs), torch.tensor(targets)


ANSWERS = all_answers()
INPUTS_PXT, TARGETS_PXT = (torch.stack(rows) for rows in zip(*(rows_of(p, ANSWERS) for p in PROMPTS), strict=True))


class Tabular(LanguageModel):
    """Logits, and a value, for each prefix: it can be any policy."""

    def __init__(self, seed=None):
        super().__init__(vocab_size=3, context_length=WIDTH)
        n_prefixes = sum(3**n for n in range(WIDTH + 1))
        generator = torch.Generator().manual_seed(seed or 0)
        spread = 0.0 if seed is None else 1.0
        self.table = nn.Parameter(spread * torch.randn(n_prefixes, 3, generator=generator, dtype=torch.float64))
        self.values = nn.Parameter(torch.zeros(n_prefixes, dtype=torch.float64))

    def prefixes(self, tokens_BT):
        """The number of each prefix: its tokens as the digits 1, 2, 3."""
        numbers = [tokens_BT[:, 0] + 1]
        for tokens_B in tokens_BT[:, 1:].T:
            numbers.append(3 * numbers[-1] + tokens_B + 1)
        return torch.stack(numbers, dim=1)

    def forward(self, tokens_BT, state=None):
        return self.table[self.prefixes(tokens_BT)]

    def with_values(self, tokens_BT):
        return self(tokens_BT), self.values[self.prefixes(tokens_BT)]


def log_p_of_answers(model):
    """log p of each answer to each prompt: (P, X)."""
    inputs_NT, targets_NT = INPUTS_PXT.flatten(0, 1), TARGETS_PXT.flatten(0, 1)
    return log_probabilities(model(inputs_NT), targets_NT).sum(dim=1).view(len(PROMPTS), -1)


def log_p_of_tokens(model, inputs_PGT, targets_PGT):
    return log_probabilities(model(inputs_PGT.flatten(0, 1)), targets_PGT.flatten(0, 1)).view(targets_PGT.shape)


def some_rewards(seed=1):
    """A number for every answer to every prompt: (P, X)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(PROMPTS), len(ANSWERS), generator=generator, dtype=torch.float64)


def total_variation(log_p, log_q):
    """Half the sum of |p - q|, for each prompt: (P,)."""
    return (log_p.exp() - log_q.exp()).abs().sum(dim=-1) / 2


def optimum_of(model, rewards_PX, beta):
    """log π*, by listing all answers (equation P8)."""
    return F.log_softmax(log_p_of_answers(model).detach() + rewards_PX / beta, dim=-1)
