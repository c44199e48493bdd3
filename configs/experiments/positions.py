"""How far each kind of position reads: trained models, read again at shorter and longer contexts."""

from collections.abc import Sequence

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, draw_means, seeds_in_words
from pellucid.experiments.measures import TrainedRun, has_learned_positions, with_context_length
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import axis_label
from pellucid.figures import label_ends, log_axis, log_limits
from pellucid.recipe import evaluate

LENGTHS = (32, 64, 128, 192, 256, 320)  # of the context in evaluation; it was 128 in training


def measure(run: TrainedRun) -> dict[str, float | None]:
    """The excess at each context length, over the whole validation part. A learned table of positions ends at 128."""
    longest = run.config.model.context_length if has_learned_positions(run.config.model) else max(LENGTHS)
    found = {}
    for length in LENGTHS:
        if length <= longest:
            model = with_context_length(run.trained, length).to(run.precision.device)
            found[f"contexts.{length}"] = evaluate(run.config, run.data, model, run.precision).excess_nats_per_token
    return found


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    points = [
        (run.label, run.seed, length, run.measured[column])
        for run in results
        for length in LENGTHS
        if (column := f"contexts.{length}") in run.measured
    ]
    picture, axes, labels, means = draw_means(figure.title, points)
    log_axis(axes, "x", log_limits(LENGTHS), LENGTHS)
    log_axis(axes, "y", log_limits(means))
    axes.set(xlabel="context length in evaluation (tokens)", ylabel=axis_label("excess"))
    label_ends(axes, labels)
    words = f"{axis_label('excess')} of each trained variant at several context lengths."
    return Sketch(picture, f"{words} {seeds_in_words(results)}")
