"""The page of a run shows the truth of the language that this run was trained on, or none and why."""

import logging
from pathlib import Path

import pytest

from own_rules import OWN_RUN, write_rules
from pellucid import train
from pellucid.errors import CheckpointError
from pellucid.web.microscope import Microscope

TEXT = "ant bee"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Microscope:
    monkeypatch.chdir(tmp_path)
    write_rules(1)
    Path("own.yaml").write_text(OWN_RUN)
    train("own.yaml", "own")
    return Microscope([Path("own")])


def test_a_run_that_was_trained_again_on_edited_rules_is_shown_with_their_truth(served):
    before = served.truth("own@1", TEXT)
    held_out = served.runs.held_out("own@1", 3)
    write_rules(3)
    assert served.truth("own@1", TEXT) == before, "the old rules are in memory"
    train("own.yaml", "own", overwrite=True)
    again = served.truth("own@1", TEXT)
    assert again["floor"] != before["floor"]
    assert again == Microscope([Path("own")]).truth("own@1", TEXT)
    assert served.runs.held_out("own@1", 3) != held_out


def test_a_run_whose_rules_were_edited_is_shown_without_a_truth_and_the_page_says_why(served, caplog):
    write_rules(3)
    later = Microscope([Path("own")])
    with caplog.at_level(logging.WARNING, "pellucid.web"):
        shown = [later.truth("own@1", text) for text in (TEXT, "bee")]
    assert [each["known"] for each in shown] == [False, False]
    assert shown[0]["why"].startswith("The truth is not shown: its corpus has changed since training; bring back ")
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "run own: its corpus has changed since training"
    ]
    assert later.runs.held_out("own@1", 3) == later.runs.examples("own@1") == []
    for measure in (later.heads, lambda checkpoint: later.knock_out(checkpoint, 2)):
        with pytest.raises(CheckpointError, match="its corpus has changed"):
            measure("own@1")
    write_rules(1)
    assert later.truth("own@1", TEXT)["known"]
    assert len(later.runs.held_out("own@1", 3)) == 3
