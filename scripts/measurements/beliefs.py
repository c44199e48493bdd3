"""How much of the best reader's beliefs a linear map reads off each layer of a model of a hidden Markov language.

Remakes: beliefs
Takes: a minute
Needs: a run of configs/languages/hidden.yaml (`draw.py beliefs` draws it)

The same for the model with its initial weights (Shai et al. 2024).
"""

from collections.abc import Iterator
from pathlib import Path

from results import Entry

from pellucid.corpora.build import build_language
from pellucid.inspection.beliefs import Beliefs, read_beliefs
from pellucid.languages.hidden import Hidden
from pellucid.trained import TrainedModel, load_trained_run

N_DOCUMENTS = 2_000


def measure(run: Path) -> Iterator[Entry]:
    after, before = beliefs_of(load_trained_run(run)[0])
    table = {
        name: {"trained (R²)": after.explained(points), "untrained (R²)": before.explained(before.layers[name])}
        for name, points in after.layers.items()
    }
    yield Entry("beliefs", table, ["languages/hidden"], numbers="fp32")


def beliefs_of(trained: TrainedModel) -> tuple[Beliefs, Beliefs]:
    """After training and before."""
    language = build_language(trained.config.corpus)  # type: ignore[arg-type]
    if not isinstance(language, Hidden) or len(language.stationary) != 3:
        raise SystemExit("take a run of corpus.type hidden, with a process of three states")
    after, before = (
        read_beliefs(model, trained.tokenizer, language, N_DOCUMENTS) for model in (trained.model, trained.untrained())
    )
    return after, before
