"""How well a model tells the better of two answers, on pairs that are held out."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.objectives.objective import Objective
from pellucid.objectives.preference import PairBatch
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision


@dataclass(frozen=True)
class PairEvaluation:
    """Means over pairs: -log σ of the margin in nats (log 2 is guessing), how often the better answer has the higher
    reward, and by how much. The reward is the model's own: of a reward model, or DPO's implicit one. Rankings of K
    answers (guessing costs log K!) count as pairs too: accuracy is over their pairs, the margin from best to worst.
    """

    loss: float
    accuracy: float
    margin: float
    n_pairs: int
    n_answers: int = 2

    @property
    def _kind(self) -> str:
        return "pair" if self.n_answers == 2 else "ranking"

    def to_row(self) -> dict[str, object]:
        """The figures for metrics.jsonl."""
        return {"val_loss": self.loss, "val_accuracy": self.accuracy, "val_margin": self.margin}

    def to_json(self) -> dict[str, object]:
        """All figures, as `pellucid evaluate --json` prints them."""
        return {
            "loss_nats_per_pair": self.loss,
            "accuracy": self.accuracy,
            "margin": self.margin,
            "pairs": self.n_pairs,
        }

    def brief(self) -> str:
        return f"{self._kind} loss {self.loss:.4f} nats, accuracy {self.accuracy:.1%}"

    def table(self) -> str:
        """All figures for a person to read, one per line."""
        from pellucid.tables import table

        guessing = math.log(math.factorial(self.n_answers))
        name, ends = ("pair loss", "the two") if self.n_answers == 2 else ("loss", "the best and the worst")
        over = f"{self.n_pairs:,} {self._kind}s"
        facts = {
            name: f"{self.loss:.4f} nats over {over}; guessing costs {guessing:.4f}",
            "accuracy": f"{self.accuracy:.1%} of the pairs: the better answer has the higher reward",
            "margin": f"{self.margin:.4f} between the rewards of {ends}",
        }
        return table((), facts.items())

    def __str__(self) -> str:
        return f"{self.brief()}, over {self.n_pairs:,} {self._kind}s"


@torch.inference_mode()
def evaluate_pairs(
    model: LanguageModel,
    objective: Objective,
    batches: Iterable[PairBatch],
    precision: Precision,
    world: World = ALONE,
) -> PairEvaluation:
    """Each rank brings batches of its own; all get the result. Dropout is off."""

    def forward(tokens_NT: Tensor) -> Tensor:
        with precision.autocast():
            logits_NTV: Tensor = model(tokens_NT)
        return logits_NTV

    totals, n_answers = torch.zeros(4, dtype=torch.float64), 2
    with eval_mode(model):
        for batch in batches:
            n_answers = batch.inputs_PKT.size(1)
            loss = objective(forward, batch.to(precision.device))
            figures = [loss.sum, loss.figures["accuracy"], loss.figures["margin"]]
            totals += torch.tensor([*map(float, figures), batch.n_losses], dtype=torch.float64)
    loss_sum, accuracy, margin, n_pairs = world.totals(totals.tolist())
    return PairEvaluation(loss_sum / n_pairs, accuracy / n_pairs, margin / n_pairs, int(n_pairs), n_answers)
