"""A tour of the page is read from YAML, and what is wrong with one is said in one line."""

import re
from pathlib import Path

import pytest

from pellucid.config.shipped import SHIPPED
from pellucid.config.tour import TourConfig, load_tour
from pellucid.errors import ConfigError

ROOT = Path(__file__).parents[2]
TOUR = """\
title: Short
about: What it is about.
minutes: 1
runs: {mine: {made_by: make demo}}
stops:
  - title: One
    say: Its loss is {loss}.
    show: {text: Once upon a time}
    question: What comes next?
    choices: [a fox, a comma]
    answer: a comma
    measures: {loss: {of: metric, name: val_loss}}
"""
SHOWN = "{text: Once upon a time}"


def read(tmp_path: Path, text: str) -> TourConfig:
    (tmp_path / "tour.yaml").write_text(text)
    return load_tour(tmp_path / "tour.yaml")


def test_a_short_tour_is_read(tmp_path: Path):
    [stop] = read(tmp_path, TOUR).stops
    assert (stop.answer, stop.measures["loss"].name) == ("a comma", "val_loss")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("answer: a comma", "answer: a dog", "stops.0.answer: 'a dog' is none of the choices; add it to them"),
        ("    question: What comes next?\n", "", "stops.0.answer: without question; add the question, or remove this"),
        ("[a fox, a comma]", "[a comma]", "stops.0.choices: a question needs at least two"),
        ("{loss}", "{los}", "stops.0.say: {los} is not measured; add it to measures, or write it in words"),
        (", name: val_loss", "", "stops.0.measures.loss.name: a metric needs the name of its column"),
        ("name: val_loss", "name: val_loss, token: a", "measures.loss.token: metric is not measured of a token"),
        ("name: val_loss", "name: val_loss, equals: a", "measures.loss.equals: only the likeliest token"),
        (SHOWN, "{text: x, head: 1.2.3}", "8: stops.0.show.head: '1.2.3' is not understood; write"),
        (SHOWN, "{text: x, off: zz}", "stops.0.show.off: 'zz' is not understood; write parts, as"),
        (SHOWN, "{text: x, compare: mine@lst}", "compare: 'mine@lst' is not understood; write RUN"),
        (SHOWN, "{text: x, step: -1}", "show.step: -1 is out of range; give a number of at least 0"),
        (SHOWN, "{text: x, step: 1, loss: 2}", "stops.0.show.loss: each of step and loss names a checkpoint; remove"),
        (
            "[a fox, a comma]",
            "{a fox: {most: 1}, a comma: {}}",
            "stops.0.answer: a measured figure decides among choices",
        ),
        (SHOWN, "{text: x, at: -2}", "show.at: -2 is out of range; give a number of at least -1"),
        (SHOWN, '{text: x, at: ""}', "stops.0.show.at: no words; copy some"),
        ("{loss: {of", "{step: {off", "12: stops.0.measures.step.off: unknown key; did you mean 'of'?"),
        ("made_by: make demo", "made_bye: make demo", "4: runs.mine.made_bye: unknown key; did you mean 'made_by'?"),
        (SHOWN, "{run: mine}", "stops: the first stop shows no text; add"),
        (SHOWN, "{text: x, run: yours}", "stops: 'One' shows 'yours'; name one of runs: mine"),
    ],
)
def test_a_mistake_in_a_tour_has_its_place(tmp_path: Path, old: str, new: str, message: str):
    assert TOUR.count(old) == 1
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, TOUR.replace(old, new))
    assert message in str(raised.value)
    assert "tour.yaml" in str(raised.value)


@pytest.mark.parametrize("file", sorted((SHIPPED / "tours").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_shipped_tour_asks_at_most_of_its_stops_and_ends_with_something_to_try(file: Path):
    tour = load_tour(file)
    assert [stop.question is None for stop in tour.stops] == [False] * (len(tour.stops) - 1) + [True]
    for stop in tour.stops:
        claims = [measure for measure in stop.measures.values() if (measure.least, measure.most) != (None, None)]
        assert claims or not any(measure.of == "probability" for measure in stop.measures.values()), stop.title


def test_the_tour_in_the_docs_can_be_read(tmp_path: Path):
    [example] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/tours.md").read_text(), flags=re.DOTALL)
    assert len(read(tmp_path, example).stops) == 2
