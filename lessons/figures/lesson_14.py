"""The figures of lesson 14."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from lesson_14 import (
    ANSWERS,
    REWARDS_QX,
    Policy,
    drawn_wins,
    fitted_rewards,
    grpo_objective,
    lora_forward,
    new_adapter,
    optimal_policy,
)

BLUE, ORANGE, GREY, PALE = "#3b6fb6", "#d9742b", "#777777", "#c9c9c9"
OWL = 1  # the second question, "about owl ?"


def ranks() -> Figure:
    """The singular values of the change that a task needs, and of what adapters of two ranks learn of it."""
    size = 16
    generator = torch.Generator().manual_seed(1)
    W, noise = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    U, _, Vh = torch.linalg.svd(noise)
    needed = 2 * 0.8 ** torch.arange(size, dtype=torch.float64)
    change = U @ torch.diag(needed) @ Vh
    inputs = torch.eye(size, dtype=torch.float64)  # every direction counts alike
    figure, axes = plt.subplots(figsize=(7.6, 3.4), layout="constrained")
    axes.bar(range(1, size + 1), needed.numpy(), color=PALE, width=0.75, label="what the task needs")
    for rank, colour, marker in ((8, BLUE, "D"), (3, ORANGE, "o")):
        adapter = [each.requires_grad_() for each in new_adapter(size, size, rank, generator)]
        for _ in range(3000):
            error = lora_forward(inputs, W, *adapter, alpha=rank) - inputs @ (W + change).T
            gradients = torch.autograd.grad(error.square().sum(), adapter)
            with torch.no_grad():
                for matrix, gradient in zip(adapter, gradients, strict=True):
                    matrix -= 0.02 * gradient
        A, B = (each.detach() for each in adapter)
        learned = torch.linalg.svdvals(B @ A).numpy()
        axes.plot(range(1, size + 1), learned, marker, color=colour, ms=7, mfc="none", mew=1.8, label=f"rank {rank}")
    axes.set(xlabel="singular values of the change, the largest first", xlim=(0.3, size + 0.7), ylim=(-0.08, 2.15))
    axes.set_xticks(range(1, size + 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, reverse=True)
    return figure


def tilt() -> Figure:
    """The reference's answers to "about owl ?", and those of the best policy for three prices."""
    reference_QX = Policy().log_p().detach().exp()
    policies = [("reference", reference_QX)]
    policies += [(f"β = {beta:g}", optimal_policy(reference_QX, REWARDS_QX, beta)) for beta in (1.0, 0.25, 0.05)]
    rewards_X = REWARDS_QX[OWL].numpy()
    order = np.argsort(-rewards_X, kind="stable")
    colours = {1.0: BLUE, 0.5: ORANGE, 0.0: PALE}
    figure, row = plt.subplots(1, 4, figsize=(9.6, 4.0), sharey=True, sharex=True, layout="constrained")
    places = np.arange(len(ANSWERS)) + 0.5 * np.repeat([0, 1, 2], [np.sum(rewards_X == r) for r in (1.0, 0.5, 0.0)])
    for axes, (name, p_QX) in zip(row, policies, strict=True):
        p_X = p_QX[OWL].numpy()[order]
        axes.barh(places, p_X, color=[colours[r] for r in rewards_X[order]], height=0.8)
        mean = float((p_X * rewards_X[order]).sum())
        axes.set_title(f"{name}\nmean reward {mean:.3f}", loc="left", fontsize=10.5)
        axes.set_xlabel("probability")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    row[0].set_yticks(places, [ANSWERS[i] for i in order], fontsize=9.5)
    row[0].invert_yaxis()
    for reward, words in ((1.0, "reward 1"), (0.5, "reward ½"), (0.0, "reward 0")):
        place = places[rewards_X[order] == reward].mean()
        shade = GREY if reward == 0 else colours[reward]
        row[0].text(0.46, place, words, color=shade, ha="right", va="center", fontsize=10)
    return figure


def judge() -> Figure:
    """What a judge that learned from 60 pairs says of the policies that please it best, and what is true."""
    reference_X, rewards_X = Policy().log_p().detach().exp()[OWL], REWARDS_QX[OWL]
    n_judges = 30
    learned_SX = fitted_rewards(torch.stack([drawn_wins(rewards_X, 60, seed) for seed in range(n_judges)]))
    betas = np.geomspace(30, 0.02, 60)
    paths = []  # KL, praise and truth of each judge at each price
    for beta in betas:
        p_SX = optimal_policy(reference_X.expand_as(learned_SX), learned_SX, float(beta))
        kl_S = torch.special.xlogy(p_SX, p_SX / reference_X).sum(dim=1)
        praise_S = ((p_SX - reference_X) * learned_SX).sum(dim=1)
        paths.append(torch.stack([kl_S, praise_S, (p_SX * rewards_X).sum(dim=1)]))
    kl_BS, praise_BS, truth_BS = torch.stack(paths).transpose(0, 1).numpy()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained")
    start = float(reference_X @ rewards_X)
    left.plot(kl_BS[:, 0], start + praise_BS[:, 0], color=ORANGE, lw=2)
    left.plot(kl_BS[:, 0], truth_BS[:, 0], color=BLUE, lw=2)
    left.text(kl_BS[-1, 0], start + praise_BS[-1, 0] - 0.12, "what the judge says", color=ORANGE, ha="right", va="top")
    left.text(kl_BS[-1, 0], truth_BS[-1, 0] + 0.05, "what is true", color=BLUE, ha="right", va="bottom")
    left.set(title="one judge", xlabel="KL from the reference, in nats", ylabel="mean reward", ylim=(0.35, None))
    right.plot(kl_BS[:, 1:], truth_BS[:, 1:], color=PALE, lw=0.9)
    right.plot(kl_BS[:, 0], truth_BS[:, 0], color=BLUE, lw=2)
    right.set(title="30 judges: what is true", xlabel="KL from the reference, in nats", ylim=(0.35, 1.03))
    for axes in (left, right):
        axes.axhline(start, color=GREY, lw=1, ls=":")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, None)
    right.text(1.04 * kl_BS.max(), start + 0.005, "reference", color=GREY, ha="right", va="bottom", fontsize=9)
    return figure


def clip() -> Figure:
    """What GRPO makes large, against the ratio, for a good answer and a bad one: as published, and as in the notes."""
    ratios = torch.linspace(0.4, 1.8, 400, dtype=torch.float64)
    figure, row = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axes, advantage, name in zip(row, (1.0, -1.0), ("a good answer: A = 1", "a bad answer: A = -1"), strict=True):
        advantages = torch.full_like(ratios, advantage)
        published = grpo_objective(ratios.log(), torch.zeros_like(ratios), advantages, 0.2)
        axes.plot(ratios, published, color=BLUE, lw=2.2, label="as published: the ratio is clipped")
        axes.plot(ratios, (ratios * advantages).clamp(0.8, 1.2), "--", color=ORANGE, lw=2, label="N3: the product is")
        axes.axvline(1.0, color=GREY, lw=1, ls=":")
        axes.set(title=name, xlabel="ratio: how much likelier than when it was written")
        axes.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel("objective")
    row[0].set_ylim(0.3, 1.5)
    row[1].set_ylim(-2, 1.5)
    row[0].legend(frameon=False, loc="lower right")
    return figure
