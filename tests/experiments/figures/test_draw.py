"""Figures: each kind is drawn, says what it shows, and says so where it cannot be drawn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from matplotlib.text import Text

from experiments.conftest import run_result
from pellucid.config.experiment import ExperimentConfig
from pellucid.experiments.figures.bars import draw_bars
from pellucid.experiments.figures.curves import _evaluations, draw_curves
from pellucid.experiments.figures.draw import draw
from pellucid.experiments.figures.means import at_equal_steps, mean_lines
from pellucid.experiments.own_code import OwnCode
from pellucid.experiments.plan import Plan
from pellucid.experiments.table import value_of
from pellucid.figures import line_style, styles_of

SKILLS = ("choice", "spelling", "recall")
FIGURES = [
    ({"type": "bars", "y": "bits_per_byte"}, "bits per byte"),
    ({"type": "lines", "x": "model.d_model", "y": "val_loss", "log_x": True}, "width of the model"),
    ({"type": "bars", "y": "of mine", "label": "what I measured (pieces)"}, "what I measured (pieces)"),
    ({"type": "lines", "x": "of mine", "y": "val_loss"}, "of mine"),
    ({"type": "lines", "x": "flops", "y": "excess.recall", "by": "model.d_model", "log_y": True}, "FLOP"),
    ({"type": "curves"}, "tokens"),
    ({"type": "curves", "x": "step", "y": "val_loss"}, "step"),
    ({"type": "skills", "y": "accuracy"}, "recall"),
    ({"type": "skill_curves"}, "tokens"),
    ({"type": "skills", "text": "longer"}, "recall"),
    ({"type": "lines", "x": "model.d_model", "y": "accuracy.recall@longer", "by": "label"}, "recall@longer"),
]


def skills(excess, accuracy=0.5):
    return {
        skill: {
            "loss_nats_per_document": excess + 1,
            "floor_nats_per_document": 1.0,
            "excess_nats_per_document": excess * (i + 1),
            "accuracy": None if skill == "choice" else accuracy,
            "share_of_tokens": 0.2,
        }
        for i, skill in enumerate(SKILLS)
    }


def result(d_model, seed):
    excess = 4 / d_model + 0.001 * seed
    curve = [
        {
            "step": step,
            "tokens": 100 * step + seed,  # rows of other widths
            "val_loss": 0.5 + 20 * excess / step,
            "val_floor": 0.5,
            "skills": skills(20 * excess / step),
        }
        for step in (10, 20, 40)
    ]
    return run_result(
        f"width {d_model}",
        seed,
        overrides={"model.d_model": d_model},
        flops=1e6 * d_model**2,
        tokens=4000 + d_model,
        val_loss=0.5 + excess,
        bits_per_byte=0.2 * (0.5 + excess),
        excess=excess,
        skills=skills(excess),
        curve=curve,
        measured={"of mine": excess / 2, "more": [1]},
        texts={"shorter": skills(excess, 0.9), "longer": skills(2 * excess)},
    )


RESULTS = [result(d_model, seed) for d_model in (8, 16, 32, 64, 128, 256) for seed in (0, 1)]


def experiment(figure):
    return ExperimentConfig(
        name="widths",
        question="How wide?",
        base="base.yaml",
        grid={"model.d_model": [8, 16, 32, 64, 128, 256]},
        seeds=(0, 1),
        figures=[{"title": "A figure", **figure}],
    )


def texts_of(drawing):
    return "\n".join(text.get_text() for text in drawing.figure.findobj(Text))


def drawn(figure, results, folder):
    config = experiment(figure)
    return draw(config.figures[0], Plan(config, Path("x.yaml"), OwnCode(Path("x.py")), (), ()), results, folder)


@pytest.mark.usefixtures("ink")
@pytest.mark.parametrize(("figure", "label"), FIGURES, ids=lambda value: str(value)[:40])
def test_every_kind_of_figure_is_drawn_with_its_units_and_a_caption(figure, label, tmp_path):
    drawing = drawn(figure, RESULTS, tmp_path)
    [file] = tmp_path.iterdir()
    assert file.name == "a-figure.png"
    image = imread(file)
    assert image.shape[0] > 300
    assert np.unique(image[..., 0]).size > 5, "not blank"
    assert label in texts_of(drawing)
    assert "Varied: model.d_model; 6 variants, 2 seeds, 12 runs." in drawing.caption


def test_a_model_that_computes_nothing_is_a_level_line_beside_the_others():
    table = [run.model_copy(update={"label": "table", "flops": 0.0}) for run in RESULTS[:2]]
    points = _evaluations(experiment({"type": "curves", "x": "flops"}).figures[0], [*RESULTS[2:4], *table])
    level, falling = (points[points.label == label] for label in ("table", "width 16"))
    assert level.groupby("seed").x.agg(list).tolist() == 2 * [[falling.x.min(), falling.x.max()]]
    assert level.groupby("seed").y.nunique().tolist() == [1, 1]
    assert falling.x.min() > 0


def test_the_learning_curve_is_drawn_beside_what_is_known():
    sketch = draw_curves(experiment({"type": "curves"}).figures[0], RESULTS, levels={"evenly": 0.2})
    assert "strategies whose excess is known" in sketch.caption
    assert "evenly" in texts_of(sketch)


def test_seeds_meet_at_equal_steps_whatever_number_of_tokens_each_has_read():
    points = pd.DataFrame(
        [("a", 0, 10, 100.0, 1.0), ("a", 1, 10, 104.0, 3.0), ("a", 0, 20, 200.0, 0.5), ("a", 1, 20, 206.0, 0.7)],
        columns=["label", "seed", "step", "x", "y"],
    )
    line = mean_lines(at_equal_steps(points, "label"))["a"]
    assert list(line.index) == [102.0, 203.0]
    assert list(line["mean"]) == pytest.approx([2.0, 0.6])


def test_what_the_results_lack_is_said(tmp_path):
    absent = {"skills": {}, "curve": [], "texts": {}, "floor": None, "excess": None}
    bare = [each.model_copy(update=absent) for each in RESULTS]
    for kind in ("skills", "skill_curves", "curves"):
        with pytest.raises(ValueError, match=r"\w+ \w+"):
            drawn({"type": kind}, bare, tmp_path)
    with pytest.raises(ValueError, match="no finished runs"):
        drawn({"type": "curves"}, [], tmp_path)
    with pytest.raises(ValueError, match="model.n_layers"):
        drawn({"type": "bars", "y": "model.n_layers"}, RESULTS, tmp_path)


@pytest.mark.parametrize("value", [0.0, -0.1])
def test_bars_of_equal_values_can_be_drawn(value, tmp_path):
    drawn({"type": "bars", "y": "excess"}, [each.model_copy(update={"excess": value}) for each in RESULTS], tmp_path)


def test_the_axis_of_shares_is_in_percent_however_far_they_lie_apart():
    shares = (("rarely", 0.01), ("often", 0.9))
    runs = [RESULTS[0].model_copy(update={"label": label, "skills": skills(0.1, share)}) for label, share in shares]
    figure = experiment({"type": "bars", "y": "accuracy.recall"}).figures[0]
    axes = draw_bars(figure, runs).figure.axes[0]
    assert (axes.get_xscale(), axes.xaxis.get_major_formatter()(0.5, 0)) == ("linear", "50 %")


def test_only_the_variants_that_are_asked_for_are_drawn(tmp_path):
    drawing = drawn({"type": "bars", "y": "excess", "only": ["width 8", "width 32"]}, RESULTS, tmp_path)
    assert "width 32" in texts_of(drawing)
    assert "width 64" not in texts_of(drawing)
    assert "2 variants" in drawing.caption
    with pytest.raises(ValueError, match="no variant is called 'width 9'"):
        drawn({"type": "bars", "y": "excess", "only": ["width 9"]}, RESULTS, tmp_path)


def test_a_loss_is_drawn_over_the_floor_of_the_text_that_it_was_measured_on(tmp_path):
    """The last evaluation reads the whole validation text, those before it a part: their floors differ."""
    curve = [{**row, "val_floor": floor} for row, floor in zip(RESULTS[0].curve, (0.45, 0.45, 0.5), strict=True)]
    run = RESULTS[0].model_copy(update={"curve": curve})
    figure = experiment({"type": "curves", "y": "val_loss"}).figures[0]
    lines = {tuple(line.get_ydata()) for line in draw_curves(figure, [run]).figure.axes[0].lines}
    assert (0.45, 0.45, 0.5) in lines


def test_a_column_that_is_not_there_is_named():
    assert value_of(RESULTS[0], "of mine") == RESULTS[0].excess / 2
    with pytest.raises(ValueError, match="has no column 'more'; it has "):
        value_of(RESULTS[0], "more")


def test_a_section_is_told_by_its_type():
    run = RESULTS[0].model_copy(update={"overrides": {"model.position": {"type": "rope", "base": 10}}})
    assert value_of(run, "model.position") == "rope"
    assert value_of(run, "model.position.type") == "rope"


def test_variants_of_one_family_share_a_hue_and_no_two_look_alike():
    styles = styles_of(["LSTM", "LSTM, Muon", "decoder, plain", "decoder, Muon", "MLP"])
    hues = {name: np.argmax(to_rgb(style.color)) for name, style in styles.items()}
    assert hues["LSTM"] == hues["LSTM, Muon"] != hues["decoder, plain"] == hues["decoder, Muon"]
    for names in (styles, [f"width {2**i}" for i in range(11)], ["β = 0.1", "β = 0.2"]):
        assert len({(style.color, style.marker) for style in styles_of(names).values()}) == len([*names])
    alone = styles_of(["rank 1", "rank 2"])["rank 2"].color
    assert to_rgb(alone) == to_rgb(line_style(1).color), "where all are one family, each has its hue"


def test_variants_without_an_order_are_not_joined_by_a_line(tmp_path):
    axes = drawn({"type": "lines", "x": "of mine", "y": "val_loss"}, RESULTS, tmp_path).figure.axes[0]
    assert all(
        line.get_linestyle() == "None" or line.get_zorder() < 2 or line.get_clip_on() is False for line in axes.lines
    )


def test_a_figure_has_its_finding_as_title_once_that_is_known(tmp_path):
    figure = {"type": "bars", "y": "excess", "finding": "Wider is better"}
    assert drawn(figure, RESULTS, tmp_path).figure.get_suptitle() == "Wider is better"
    assert [file.name for file in tmp_path.iterdir()] == ["a-figure.png"]


def test_an_excess_too_small_to_be_told_is_no_number_with_an_exponent(tmp_path):
    tiny = [run.model_copy(update={"skills": skills(2e-5 if run.seed else 3e-5)}) for run in RESULTS[:2]]
    assert "<0.001" in texts_of(drawn({"type": "skills"}, [*tiny, *RESULTS[2:]], tmp_path))


def test_a_bar_has_the_colour_of_its_own_family_wherever_it_stands(tmp_path):
    names = ["1 layer", "2 layers", "1 layer, wide"]
    runs = [run.model_copy(update={"label": name}) for run, name in zip(RESULTS[::2], names, strict=False)]
    bars = drawn({"type": "bars", "y": "excess"}, runs, tmp_path).figure.axes[0].patches
    assert [bar.get_facecolor()[:3] for bar in bars] == [to_rgb(styles_of(names)[name].color) for name in names]
