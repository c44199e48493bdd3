"""How many of a model's stories are fables: samples some at temperature 1 and reads each by the grammar.

python scripts/judge_fables.py checkpoints/fables --num-samples 100
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pellucid.evaluation.written import judge as judge_texts
from pellucid.generation import Sampling, generate_text
from pellucid.inspection.build import fables_of
from pellucid.languages.fables import Fables
from pellucid.trained import load_trained_run


def judge(run: Path, n_samples: int, seed: int) -> tuple[int, float]:
    """How many stories the grammar accepts whole, and after which share of the text the first fault comes (mean)."""
    trained, _ = load_trained_run(run)
    fables = fables_of(trained, "judge_fables")
    completions = generate_text(
        trained.model,
        trained.tokenizer,
        "",
        n_samples=n_samples,
        max_new_tokens=trained.config.model.context_length,
        sampling=Sampling(temperature=1.0),
        seed=seed,
    )
    texts = [completion.completion for completion in completions]
    n_fables = round(judge_texts(fables, texts).whole * len(texts))
    return n_fables, sum(share_before_first_fault(fables, text) for text in texts) / len(texts)


def share_before_first_fault(fables: Fables, text: str) -> float:
    """How much of a text some fable begins with: 1 for a whole one, and for the beginning of one."""
    broken_at = fables.examine(text).broken_at
    return 1.0 if broken_at is None else broken_at / len(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--num-samples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    n_fables, share = judge(arguments.run, arguments.num_samples, arguments.seed)
    print(f"{n_fables} of {arguments.num_samples} stories are fables to the last character")
    print(f"the first fault comes, on average, after {share:.0%} of the text")


if __name__ == "__main__":
    main()
