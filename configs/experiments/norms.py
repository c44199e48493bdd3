"""The gradient at the first step, block by block."""

from collections.abc import Sequence

from torch import nn

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, draw_means, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.results import RunResult
from pellucid.figures import label_ends, log_axis, log_limits
from pellucid.recipe import build_batches, build_trainer


def measure(run: TrainedRun) -> dict[str, list[float]]:
    """The norm of the gradient in each block: of the first micro-batch, with the first weights of the run's seed."""
    trainer, _ = build_trainer(run.config, run.data)
    batch = build_batches(run.config, run.data).batch(0).to(trainer.precision.device)
    loss = trainer.objective(trainer.logits, batch)
    ((loss.sum + loss.penalty) / loss.count).backward()
    gradients = ([weight.grad for weight in block.parameters()] for block in trainer.model.blocks)
    return {"gradient_norms": [float(nn.utils.get_total_norm(of_block)) for of_block in gradients]}


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    points = [(run.label, run.seed, x, y) for run in results for x, y in enumerate(run.measured["gradient_norms"], 1)]
    picture, axes, labels, means = draw_means(figure.title, points)
    log_axis(axes, "y", log_limits(means))
    axes.set_xticks(sorted(set(means.index)))
    axes.set(xlabel="block (1 reads the embeddings)", ylabel="norm of the gradient at the first step")
    label_ends(axes, labels)
    words = "Norm of the gradient in each block at the first step, on a logarithmic axis."
    return Sketch(picture, f"{words} {seeds_in_words(results)}")
