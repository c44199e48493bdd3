"""The YAML of an experiment: what is accepted, what is refused, and with which line."""

from pathlib import Path

import pytest

from pellucid.config.experiment import load_experiment
from pellucid.errors import ConfigError

SMALL = """\
name: small
question: What for?
base: configs/debug.yaml
grid:
  model.n_layers: [1, 2]
seeds: [0, 1, 2]
figures:
  - {type: bars, title: Excess, y: excess}
  - type: lines
    title: Excess against depth
    x: model.n_layers
    y: excess
"""


def load(folder: Path, text: str):
    (folder / "x.yaml").write_text(text)
    return load_experiment(folder / "x.yaml")


def test_an_experiment_knows_where_each_key_stands(tmp_path: Path):
    config, places = load(tmp_path, SMALL)
    assert config.grid == {"model.n_layers": [1, 2]}
    assert config.seeds == (0, 1, 2)
    assert [figure.type for figure in config.figures] == ["bars", "lines"]
    assert places["grid", "model.n_layers"] == f"{tmp_path}/x.yaml:5"
    assert places["figures", 1, "title"] == f"{tmp_path}/x.yaml:10"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("seeds: [0, 1, 2]", "seeds: [0, -8]", ":6: seeds.1: -8 is out of range; give a value of at least 0"),
        ("[1, 2]", "[]", ":5: grid.model.n_layers: too few values; give a longer list"),
        ("title: Excess,", "titel: Excess,", ":8: figures.0.titel: unknown key; did you mean 'title'?"),
        ("type: lines", "type: line", ":9: figures.1.type: 'line' is not a choice; use one of 'bars', 'lines', 'curv"),
        ("Excess against depth", "'Excess!'", ":1: the figures 'Excess' and 'Excess!' would both be excess.png; give"),
        ("grid:\n  model.n_layers: [1, 2]\n", "", ":1: an experiment has either a grid or a list of runs; give one"),
    ],
)
def test_a_fault_is_answered_with_file_line_and_key(tmp_path: Path, before, after, message):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, SMALL.replace(before, after))
    assert str(caught.value).startswith(f"{tmp_path}/x.yaml{message}")
