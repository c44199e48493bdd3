"""Every method of post-training beside the best that is possible, and what happens when the judge can be fooled.

    python scripts/measure_post_training.py checkpoints --record

The folder holds the runs of `make demo-chat`. Trains the other methods from the same fine-tuned model (a reward model,
DPO, PPO), and GRPO on what the reward model says: free of charge (β = 0), and with prices on the divergence from
the reference. With --record it also draws docs/frontier.png, rewards against KL divergence with the exact optimum; and
docs/over_optimization.png, what the reward model says and what the grammar says. About half an hour on four cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from draw_rewards import Reached, draw_frontier, draw_over_optimization
from frontier import RewardDistribution, best_reward
from matplotlib.figure import Figure
from results import ROOT, here, parser, print_table, record

from pellucid.corpora.instructions import InstructionsCorpus
from pellucid.evaluation.answers import judge_answers
from pellucid.trained import load_trained_run
from pellucid.training.metrics import read_rows

REFERENCE = "instructions_sft"
METHODS = {"DPO": "instructions_dpo", "GRPO": "instructions_grpo", "PPO": "instructions_ppo"}
PROXY = "objective.reward={type: model, run: %s}"
N_PROMPTS, N_SAMPLES = 48, 64  # of the reference, for the frontier
N_ANSWERS = 320
PRICES = (0, 0.1, 0.5, 1)  # of a nat of divergence, where the reward model judges


def train(config: str, run: Path, *changes: str) -> Path:
    """Trains, unless that was done before."""
    if (run / "rewards.png").exists() or (run / "loss.png").exists():  # which a run draws when it ends
        return run
    command = [sys.executable, "-m", "pellucid", "train", ROOT / f"configs/{config}.yaml", *changes]
    command.append(f"train.processes={torch.get_num_threads()}")  # of its own, so short a run takes one
    subprocess.run([*command, "--run-dir", run, "--resume"], check=True)
    return run


def judged(run: Path, corpus: InstructionsCorpus, reference: Any, n: int) -> list[Any]:
    """Answers of a run's newest checkpoint, with verdicts and divergences."""
    trained, precision = load_trained_run(run, "latest")
    return judge_answers(trained.model, trained.tokenizer, corpus, precision, n=n, reference=reference)


def excess_on_fables(run: Path, base: Path) -> float:
    """What a method has forgotten: the loss above the floor, as a share of it, on the text of pretraining."""
    command = [sys.executable, "-m", "pellucid", "evaluate", run, "--checkpoint", "latest", "--on", base, "--json"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(found)["excess_fraction"])


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


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


def frontier(folder: Path) -> tuple[dict[str, dict[str, float]], Figure]:
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
        kl, reward = mean([answer.kl for answer in answers]), mean([answer.verdict.reward for answer in answers])
        rows = [row for row in read_rows(folder / run / "metrics.jsonl") if "val_kl" in row]
        if run != REFERENCE:
            points[name] = [*(Reached(row["val_kl"], row["val_reward"]) for row in rows), Reached(kl, reward)]
        table[name] = {
            "reward": reward,
            "KL (nats)": kl,
            "the best for this KL": best_reward(prompts, kl),
            "whole (%)": 100 * mean([float(answer.verdict.whole) for answer in answers]),
            "obey (%)": 100 * mean([float(answer.verdict.obeys) for answer in answers]),
            "excess on plain fables (%)": 100 * excess_on_fables(folder / run, base[0]),
        }
    return table, draw_frontier("Reward and divergence, on Fables", prompts, points)


def over_optimization(fooled: dict[str, Path]) -> tuple[dict[str, dict[str, float]], Figure]:
    """What the reward model says and what the grammar says, as a table and a figure: means of five updates."""
    curves = {name: read_rows(run / "metrics.jsonl") for name, run in fooled.items()}
    table = {
        name: {
            "reward model, start": mean([row["reward"] for row in rows[:5]]),
            "reward model, end": mean([row["reward"] for row in rows[-5:]]),
            "truth, start": mean([(row["whole"] + row["obeys"]) / 2 for row in rows[:5]]),
            "truth, end": mean([(row["whole"] + row["obeys"]) / 2 for row in rows[-5:]]),
            "KL, end (nats)": mean([row["kl"] for row in rows[-5:]]),
        }
        for name, rows in curves.items()
    }
    return table, draw_over_optimization("A reward model is not the truth", curves)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("runs", type=Path, help="the folder of the runs")
    options = arguments.parse_args()
    folder = options.runs.resolve()
    start = f"start_from={folder / REFERENCE}"
    reward_model = train("reward_model", folder / "reward_model", start)
    for config in METHODS.values():
        train(config, folder / config, start)
    fooled = {
        f"β = {beta}": train(
            "instructions_grpo",
            folder / f"proxy_{beta}",
            start,
            PROXY % reward_model,
            "objective.credit_decay=null",
            "train.steps=50",
            f"objective.beta={beta}",
        )
        for beta in PRICES
    }
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one token at a time is so little work that threads would only wait for each other
    (reached, frontier_figure), (ends, proxy_figure) = frontier(folder), over_optimization(fooled)
    print_table("method", reached)
    print_table("reward of", ends)
    torch.set_num_threads(n_threads)
    if options.record:
        record(here("frontier"), reached, ["fables", REFERENCE, *METHODS.values()])
        record(here("over_optimization"), ends, ["fables", REFERENCE, "reward_model", "instructions_grpo"])
        frontier_figure.savefig(ROOT / "docs/frontier.png", dpi=150)
        proxy_figure.savefig(ROOT / "docs/over_optimization.png", dpi=150)


if __name__ == "__main__":
    main()
