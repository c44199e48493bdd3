"""How many of a model's stories are fables: samples some at temperature 1 and reads each by the grammar.

Remakes: nothing
Takes: a few seconds
Needs: checkpoints/fables

The measurement of the demo asks it, too.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from results import Entry

from pellucid.evaluation.written import judge as judge_texts
from pellucid.generation.sampling import Sampling
from pellucid.generation.text import generate_text
from pellucid.inspection.build import fables_of
from pellucid.languages.fables import Fables
from pellucid.trained import load_trained_run


def measure(run: Path, *, num_samples: int = 100, seed: int = 0) -> Iterator[Entry]:
    trained, _ = load_trained_run(run)
    fables = fables_of(trained, "stories")
    written = generate_text(
        trained.model,
        trained.tokenizer,
        "",
        n_samples=num_samples,
        max_new_tokens=trained.config.model.context_length,
        sampling=Sampling(temperature=1.0),
        seed=seed,
    )
    yield Entry("stories", judged(fables, [each.completion for each in written]))


def judged(fables: Fables, texts: Sequence[str]) -> dict[str, float]:
    """How many the grammar accepts to the last character, and where on average the first fault comes."""
    return {
        f"accepted stories (of {len(texts)})": round(judge_texts(fables, texts).whole * len(texts)),
        "first fault after (% of the text)": 100
        * sum(share_before_first_fault(fables, text) for text in texts)
        / len(texts),
    }


def share_before_first_fault(fables: Fables, text: str) -> float:
    """How much of a text some fable begins with: 1 for a whole one, and for the beginning of one."""
    broken_at = fables.examine(text).broken_at
    return 1.0 if broken_at is None else broken_at / len(text)
