"""The shipped configs are found by name from anywhere, but never in place of a file that is there."""

from pathlib import Path

import pytest

from pellucid.config.experiment import load_experiment
from pellucid.config.load import load_run_config
from pellucid.config.shipped import SHIPPED, find_config, shipped_configs
from pellucid.errors import ConfigError


@pytest.mark.parametrize("name", ["debug", "debug.yaml", "configs/debug.yaml"])
def test_a_shipped_config_is_found_by_name_from_an_empty_folder(tmp_path: Path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert find_config(Path(name)) == SHIPPED / "debug.yaml"
    assert load_run_config(Path(name)).name == "debug"


def test_a_file_that_is_there_comes_before_a_shipped_one(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("debug.yaml").write_text("name: mine")
    assert find_config(Path("debug.yaml")) == Path("debug.yaml")


@pytest.mark.parametrize("name", ["schema.json", "schema", "experiments", ".", "../README.md", "/debug"])
def test_nothing_but_a_config_is_found(tmp_path: Path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert find_config(Path(name)) == Path(name)


def test_a_misspelled_name_is_answered_with_the_nearest(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="fabels: no such file; did you mean 'fables'?"):
        load_run_config(Path("fabels"))


@pytest.mark.usefixtures("trained_before")
def test_each_shipped_config_is_listed_and_loads_by_its_name():
    listed = dict(shipped_configs())
    assert len(listed) == len([file for file in SHIPPED.rglob("*.yaml") if file.parent.name != "tours"])
    for name, purpose in listed.items():
        if name.startswith("experiments/"):
            assert load_experiment(Path(name)).config.name == name.removeprefix("experiments/")
        else:
            assert load_run_config(Path(name)).name == name.removeprefix("languages/")
        assert len(purpose) > 20


def test_a_folder_of_the_same_name_does_not_hide_a_shipped_config(tmp_path: Path, monkeypatch):
    (tmp_path / "own_text").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_config(Path("own_text")) == SHIPPED / "own_text.yaml"
