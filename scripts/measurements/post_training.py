"""Every method of post-training beside the best that is possible, and what happens when the judge can be fooled.

Remakes: frontier, over_optimization
Takes: half an hour
Needs: the folder with the runs of `make demo-chat`

Trains the other methods from the same fine-tuned model (a reward model, DPO, PPO), and GRPO on what the reward model
says: free of charge (β = 0), and with prices on the divergence from the reference.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from measurements import frontier
from measurements.frontier import RewardDistribution
from results import ROOT, Entry, here
from runs import evaluation, pellucid

from pellucid.corpora.instructions import InstructionsCorpus
from pellucid.evaluation.answers import judge_answers
from pellucid.figures import FLOOR_STYLE, EndLabel, figure_of_lines, in_short, label_ends, line_style, new_figure
from pellucid.trained import load_trained_run
from pellucid.training.metrics import read_rows

REFERENCE = "instructions_sft"
METHODS = {"DPO": "instructions_dpo", "GRPO": "instructions_grpo", "PPO": "instructions_ppo"}
PROXY = "objective.reward={type: model, run: %s}"
N_PROMPTS, N_SAMPLES = 48, 64  # of the reference, for the frontier
N_ANSWERS = 320
PRICES = (0, 0.1, 0.5, 1)  # of a nat of divergence, where the reward model judges
UPDATES_AVERAGED = 5  # answers are few, and their rewards noisy


class Reached(NamedTuple):
    """A trained policy's KL divergence from the reference in nats, and its mean reward."""

    kl: float
    reward: float


def measure(runs: Path, *, pictures: Path | None = None) -> Iterator[Entry]:
    """--pictures docs: draws rewards beside the exact optimum, and what the reward model says beside the grammar."""
    start = f"start_from={runs / REFERENCE}"
    reward_model = train("reward_model", runs / "reward_model", start)
    for config in METHODS.values():
        train(config, runs / config, start)
    judged_by_model = (start, PROXY % reward_model, "objective.credit_decay=null", "train.steps=50")
    fooled = {
        f"β = {beta}": train("instructions_grpo", runs / f"proxy_{beta}", *judged_by_model, f"objective.beta={beta}")
        for beta in PRICES
    }
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one token at a time is so little work that threads would only wait for each other
    (reached, frontier_figure), (ends, proxy_figure) = frontier_of(runs), over_optimization(fooled)
    torch.set_num_threads(n_threads)
    if pictures:
        frontier_figure.savefig(pictures / "frontier.png", dpi=150)
        proxy_figure.savefig(pictures / "over_optimization.png", dpi=150)
    yield Entry(here("frontier"), reached, ["fables", REFERENCE, *METHODS.values()])
    yield Entry(here("over_optimization"), ends, ["fables", REFERENCE, "reward_model", "instructions_grpo"])


def train(config: str, run: Path, *changes: str) -> Path:
    """Trains, unless that was done before."""
    if not ((run / "rewards.png").exists() or (run / "loss.png").exists()):  # which a run draws when it ends
        processes = f"train.processes={torch.get_num_threads()}"  # of its own, so short a run takes one
        pellucid("train", ROOT / f"configs/{config}.yaml", *changes, processes, "--run-dir", run, "--resume")
    return run


def judged(run: Path, corpus: InstructionsCorpus, reference: Any, n: int) -> list[Any]:
    """Answers of a run's newest checkpoint, with verdicts and divergences."""
    trained, precision = load_trained_run(run, "latest")
    return judge_answers(trained.model, trained.tokenizer, corpus, precision, n=n, reference=reference)


def rewards_of_reference(trained: Any, corpus: InstructionsCorpus, precision: Any) -> list[RewardDistribution]:
    """How the rewards of the reference's answers to each of some instructions are distributed."""
    samples = [
        [
            answer.verdict.reward
            for answer in judge_answers(
                trained.model, trained.tokenizer, corpus, precision, n=N_PROMPTS, seed=1000 + seed
            )
        ]
        for seed in range(N_SAMPLES)
    ]
    return [RewardDistribution.of_samples(rewards) for rewards in zip(*samples, strict=True)]


def frontier_of(folder: Path) -> tuple[dict[str, dict[str, float]], Figure]:
    """Each method beside the best that is possible, as a table and a figure."""
    trained, precision = load_trained_run(folder / REFERENCE, "latest")
    base = trained.config.base_run
    assert base is not None, "the reference was fine-tuned from a run of fables"
    corpus = trained.corpus()
    assert isinstance(corpus, InstructionsCorpus)
    prompts = rewards_of_reference(trained, corpus, precision)
    table: dict[str, dict[str, float]] = {}
    points: dict[str, list[Reached]] = {}
    for name, run in {"SFT, the reference": REFERENCE, **METHODS}.items():
        answers = judged(folder / run, corpus, trained.model, N_ANSWERS)
        kl, reward = mean(answer.kl for answer in answers), mean(answer.verdict.reward for answer in answers)
        rows = [row for row in read_rows(folder / run / "metrics.jsonl") if "val_kl" in row]
        forgotten = evaluation(folder / run, "--checkpoint", "latest", "--on", base[0])
        if run != REFERENCE:
            points[name] = [*(Reached(row["val_kl"], row["val_reward"]) for row in rows), Reached(kl, reward)]
        table[name] = {
            "reward": reward,
            "KL (nats)": kl,
            "the best for this KL": frontier.best_reward(prompts, kl),
            "whole (%)": 100 * mean(float(answer.verdict.whole) for answer in answers),
            "obey (%)": 100 * mean(float(answer.verdict.obeys) for answer in answers),
            "excess on plain fables (%)": 100 * forgotten["excess_fraction"],
        }
    return table, draw_frontier("Reward and divergence, on Fables", prompts, points)


def over_optimization(fooled: dict[str, Path]) -> tuple[dict[str, dict[str, float]], Figure]:
    """The judgement of the reward model beside that of the grammar, as a table and a figure."""
    curves = {name: read_rows(run / "metrics.jsonl") for name, run in fooled.items()}
    figure = draw_over_optimization("A reward model is not the truth", curves)
    return {name: start_and_end(rows) for name, rows in curves.items()}, figure


def truth(row: Mapping[str, Any]) -> float:
    """The grammar's reward for the answers of an update: half for complete fables, half for those that obey."""
    return float(row["whole"] + row["obeys"]) / 2


def start_and_end(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means of five updates."""
    return {
        "reward model, start": mean(row["reward"] for row in rows[:5]),
        "reward model, end": mean(row["reward"] for row in rows[-5:]),
        "truth, start": mean(map(truth, rows[:5])),
        "truth, end": mean(map(truth, rows[-5:])),
        "KL, end (nats)": mean(row["kl"] for row in rows[-5:]),
    }


def draw_frontier(
    title: str, prompts: Sequence[RewardDistribution], methods: Mapping[str, Sequence[Reached]]
) -> Figure:
    """Draw the frontier as a line, and the points of each method, joined in their order (of checkpoints, or of β).

    prompts: the distribution of rewards for each under the reference.
    """
    optima = frontier.frontier(prompts)
    figure, axes = figure_of_lines(title, ["the best possible", *methods])
    axes.plot([point.kl for point in optima], [point.reward for point in optima], color="black", linewidth=2, zorder=3)
    labels = [EndLabel("the best possible", optima[-1].kl, optima[-1].reward, FLOOR_STYLE)]
    for index, (name, points) in enumerate(methods.items()):
        style, (kls, rewards) = line_style(index), zip(*points, strict=True)
        axes.plot(kls, rewards, color=style.color, linestyle=style.linestyle, linewidth=1, alpha=0.6)
        axes.plot(kls, rewards, style.marker, color=style.color, markersize=6.5, markeredgecolor="white", zorder=4)
        labels.append(EndLabel(name, kls[-1], rewards[-1], style))
    axes.set(xlabel="KL divergence from the reference (nats per answer)", ylabel="mean reward")
    axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
    axes.set_xlim(left=0)
    label_ends(axes, labels)
    return figure


def draw_over_optimization(title: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw proxy reward and true reward against updates, in two panels. runs: rows of metrics.jsonl, by name."""
    figure = new_figure(title, 9.5, 4.2)
    panels = figure.subplots(1, 2)
    for axes, name in zip(panels, ("the reward model says", "the grammar says"), strict=True):
        axes.set(title=name, xlabel="updates", ylabel="mean reward of the answers")
    labels = []
    for index, (name, rows) in enumerate(runs.items()):
        style, steps = line_style(index), [row["step"] for row in rows]
        for axes, rewards in zip(panels, ([row["reward"] for row in rows], list(map(truth, rows))), strict=True):
            smooth = [mean(rewards[max(0, end - UPDATES_AVERAGED) : end]) for end in range(1, len(rewards) + 1)]
            axes.plot(steps, rewards, color=style.color, linewidth=0.6, alpha=0.3)
            axes.plot(steps, smooth, color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(name, steps[-1], smooth[-1], style))
    label_ends(panels[1], labels)
    return figure
