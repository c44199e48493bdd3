"""Lesson 14: doing as told. Write what is missing, then run `pellucid learn 14`.

The last letters of a name are the axes: Q questions, X all answers to a question, N texts or samples, P pairs of
answers, G answers in a group, T tokens, V words. All numbers are float64 tensors of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ---- A language of twelve answers ----

WORDS = (".", "again", "sleeps", "sings", "sing", "fox", "owl", "about", "?")
QUESTIONS = ("about fox ?", "about owl ?")
HEROES, VERBS, ENDINGS = ("fox", "owl"), ("sings", "sleeps", "sing"), (".", "again .")
ANSWERS = [f"{hero} {verb} {ending}" for hero in HEROES for verb in VERBS for ending in ENDINGS]

OBEYS_QX = torch.tensor([[answer.split()[0] in question for answer in ANSWERS] for question in QUESTIONS])
WHOLE_QX = torch.tensor([[" sing " not in answer for answer in ANSWERS] for _ in QUESTIONS])
REWARDS_QX = 0.5 * OBEYS_QX.double() + 0.5 * WHOLE_QX.double()


class Policy(nn.Module):
    """A model of the answers to both questions, with logits for each beginning: it can be any policy.

    It starts as the reference, which knows the verbs by and large and does not listen well.
    """

    def __init__(self) -> None:
        super().__init__()
        heroes = torch.tensor([[0.6, 0.4], [0.75, 0.25]], dtype=torch.float64)  # of each question
        verbs = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).expand(2, 2, 3)
        endings = torch.tensor([0.7, 0.3], dtype=torch.float64).expand(2, 2, 3, 2)
        self.tables = nn.ParameterList([nn.Parameter(table.log().clone()) for table in (heroes, verbs, endings)])

    def log_p_of_tokens(self) -> Tensor:
        """log p of every token of every answer: (Q, X, T) with T = 4, and 0 after the end of an answer."""
        hero, verb, ending = (F.log_softmax(table, dim=-1) for table in self.tables)
        parts = (hero[:, :, None, None], verb[..., None], ending)
        tokens_QX3 = torch.stack([part.expand(2, 2, 3, 2) for part in parts], dim=-1).reshape(2, 12, 3)
        return F.pad(tokens_QX3, (0, 1))  # after "again" comes "." for certain

    def log_p(self) -> Tensor:
        """log p of every answer to every question: (Q, X)."""
        return self.log_p_of_tokens().sum(dim=-1)


def texts(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """n questions with answers, both drawn: what the model says of them.

    The result: its logits at each place (N, T, V), the next token there (N, T), and whether that one belongs to the
    answer (N, T).
    """
    p_QX = Policy().log_p().detach().exp()
    drawn = torch.multinomial(p_QX.flatten() / 2, n, replacement=True, generator=torch.Generator().manual_seed(seed))
    every = [f"{question} {answer}".split() for question in QUESTIONS for answer in ANSWERS]
    T = max(map(len, every)) - 1
    logits, targets = torch.zeros(len(every), T, len(WORDS), dtype=torch.float64), torch.zeros(len(every), T).long()
    is_answer = torch.zeros(len(every), T, dtype=torch.bool)
    for row, text in enumerate(every):
        for t in range(len(text) - 1):
            starts = [
                (other, p) for other, p in zip(every, p_QX.flatten(), strict=True) if other[: t + 1] == text[: t + 1]
            ]
            for other, p in starts:
                logits[row, t, WORDS.index(other[t + 1])] += p
            targets[row, t], is_answer[row, t] = WORDS.index(text[t + 1]), t >= 2
    return (logits + 1e-12).log()[drawn], targets[drawn], is_answer[drawn]


def minimise(loss_of: Callable[[Policy], Tensor], n_steps: int = 400, rate: float = 0.1) -> Policy:
    """The policy that makes a loss smallest, found from the reference by Adam (lesson 10) with a falling rate."""
    policy = Policy()
    tables = list(policy.parameters())
    m, v = [torch.zeros_like(table) for table in tables], [torch.zeros_like(table) for table in tables]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other: these tensors are tiny
    try:
        for step in range(1, n_steps + 1):
            gradients = torch.autograd.grad(loss_of(policy), tables)
            lr = rate * (1 + math.cos(math.pi * step / n_steps)) / 2
            with torch.no_grad():
                for i, g in enumerate(gradients):
                    m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.999 * v[i] + 0.001 * g * g
                    tables[i] -= lr * (m[i] / (1 - 0.9**step)) / ((v[i] / (1 - 0.999**step)).sqrt() + 1e-12)
    finally:
        torch.set_num_threads(n_threads)
    return policy


def fitted_rewards(wins_XX: Tensor, decay: float = 1e-3, n_steps: int = 300) -> Tensor:
    """The rewards (X,) for which so many wins of row over column are likeliest, found by gradient descent.

    A little weight decay keeps the reward of an answer that never lost from growing for ever.
    """
    r_X = speed_X = torch.zeros(wins_XX.shape[:-1], dtype=torch.float64)
    n_pairs = wins_XX.sum(dim=(-2, -1), keepdim=True)
    for _ in range(n_steps):
        surprise_XX = wins_XX / n_pairs * torch.sigmoid(r_X[..., None, :] - r_X[..., :, None])
        speed_X = 0.9 * speed_X + surprise_XX.sum(dim=-1) - surprise_XX.sum(dim=-2) - 2 * decay * r_X
        r_X = r_X + speed_X
    return r_X


def drawn_wins(rewards_X: Tensor, n_pairs: int, seed: int = 0) -> Tensor:
    """How often each answer (row) was preferred to each other (column) among so many pairs drawn: (X, X)."""
    generator = torch.Generator().manual_seed(seed)
    X = len(rewards_X)
    first = torch.randint(X, (n_pairs,), generator=generator)
    second = (first + torch.randint(1, X, (n_pairs,), generator=generator)) % X
    p_first = torch.sigmoid(rewards_X[first] - rewards_X[second])
    is_first = torch.rand(n_pairs, dtype=torch.float64, generator=generator) < p_first
    chosen, rejected = torch.where(is_first, first, second), torch.where(is_first, second, first)
    return torch.bincount(chosen * X + rejected, minlength=X * X).reshape(X, X).double()


# ---- Learning from examples ----


def answer_loss(logits_NTV: Tensor, targets_NT: Tensor, is_answer_NT: Tensor) -> Tensor:
    """The mean surprise, in nats, at the tokens of the answers: one number for the whole batch.

    is_answer is True where the target belongs to an answer, and False for questions and padding.
    """
    # solution:
    log_p_NTV = F.log_softmax(logits_NTV, dim=-1)
    log_p_NT = log_p_NTV.gather(-1, targets_NT[..., None])[..., 0]
    return -log_p_NT[is_answer_NT].mean()
    # end


def new_adapter(n_outputs: int, n_inputs: int, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The matrices A (R, I) and B (O, R) of a new adapter, as a pair: they change nothing yet.

    At step 0 the gradient of A is zero, that of B is not.

    Random numbers: `torch.randn(rows, columns, generator=generator, dtype=torch.float64)`, divided by √I.
    """
    # solution:
    A_RI = torch.randn(rank, n_inputs, generator=generator, dtype=torch.float64) / n_inputs**0.5
    return A_RI, torch.zeros(n_outputs, rank, dtype=torch.float64)
    # end


def lora_forward(x_NI: Tensor, W_OI: Tensor, A_RI: Tensor, B_OR: Tensor, alpha: float) -> Tensor:
    """The outputs (N, O) of a layer with an adapter: the matrix is W + (α/R) B A, and x has an input in each row."""
    # solution:
    scale = alpha / len(A_RI)
    return x_NI @ W_OI.T + scale * (x_NI @ A_RI.T @ B_OR.T)
    # end


# ---- Learning from preferences ----


def reward_loss(chosen_P: Tensor, rejected_P: Tensor) -> Tensor:
    """The mean surprise, in nats, at so many preferences, by Bradley and Terry: one number.

    chosen and rejected are the rewards of the answer that won and of the one that lost, for each pair.
    """
    # solution:
    return -F.logsigmoid(chosen_P - rejected_P).mean()
    # end


def optimal_policy(reference_QX: Tensor, rewards_QX: Tensor, beta: float) -> Tensor:
    """The probabilities (Q, X) of the policy that makes E[R] - β KL(π ‖ reference) largest for each question.

    reference: the probabilities of all answers to each question, which sum to 1 in each row.
    """
    # solution:
    return torch.softmax(reference_QX.log() + rewards_QX / beta, dim=-1)  # so a low price gives no infinite factors
    # end


def dpo_loss(
    chosen_PT: Tensor, rejected_PT: Tensor, reference_chosen_PT: Tensor, reference_rejected_PT: Tensor, beta: float
) -> Tensor:
    """DPO's loss of each pair: (P,).

    All four are log-probabilities of single *tokens*, with 0 after the end of an answer: those of the chosen and the
    rejected answer under the policy, and under the reference. No gradient may reach the reference.
    """
    # solution:
    chosen_P = (chosen_PT - reference_chosen_PT.detach()).sum(dim=1)
    rejected_P = (rejected_PT - reference_rejected_PT.detach()).sum(dim=1)
    return -F.logsigmoid(beta * (chosen_P - rejected_P))
    # end


# ---- Learning from one's own answers ----


def group_advantages(rewards_QG: Tensor) -> Tensor:
    """The advantage of each answer over the others to its question, (Q, G): its reward less the mean, over s + 1e-4.

    s is the standard deviation of the question's rewards, with G - 1 in the denominator.
    """
    # solution:
    centered_QG = rewards_QG - rewards_QG.mean(dim=1, keepdim=True)
    return centered_QG / (rewards_QG.std(dim=1, keepdim=True) + 1e-4)
    # end


def grpo_objective(log_p_N: Tensor, old_log_p_N: Tensor, advantages_N: Tensor, clip: float) -> Tensor:
    """What GRPO makes large, for each sample (N,): the ratio times the advantage, but no gain from going too far.

    The ratio is that of the probabilities now and when the samples were drawn. It is clipped to 1 - clip … 1 + clip.
    """
    # solution:
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    return torch.minimum(ratio_N * advantages_N, ratio_N.clamp(1 - clip, 1 + clip) * advantages_N)
    # end
