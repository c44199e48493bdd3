"""How a measurement and a drawing are found and run, and that every figure of the pages has one that remakes it."""

import json
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import draw
import gpu
import measure
import pytest
import registry
from results import ROOT, Entry, pages, read
from write_lm_eval_tasks import write_tasks

from pellucid.corpora.drawn import Drawn
from tiny_fables import tiny_fables

MEASUREMENTS, DRAWINGS = registry.programs("measurements", "measure"), registry.programs("drawings", "draw")
MODULES = [
    ".".join(file.relative_to(ROOT / "scripts").with_suffix("").parts)
    for file in sorted((ROOT / "scripts").rglob("*.py"))
    if "node_modules" not in file.parts and file.stem != "site_hooks"  # which needs MkDocs: tests/test_site.py
]
KIND_OF_MACHINE = re.compile("_(gpu|avx2|avx512)$")


@pytest.mark.parametrize("module", MODULES)
def test_what_a_script_imports_is_there(module):
    import_module(module)


@pytest.mark.parametrize("programs", [MEASUREMENTS, DRAWINGS], ids=["measure", "draw"])
def test_each_program_says_what_it_is_and_remakes_how_long_it_takes_and_what_it_needs(programs):
    for name, (summary, facts) in programs.items():
        assert re.search(r"[.:]$", summary), name
        assert list(facts) == ["Remakes", "Takes", "Needs"], name


def test_every_recorded_figure_is_remade_by_one_measurement():
    remade = [entry for program in MEASUREMENTS.values() for entry in program.facts["Remakes"].split(", ")]
    assert len(remade) == len(set(remade))
    recorded = {KIND_OF_MACHINE.sub("", name) for name in read()}
    assert recorded - set(remade) == {"soak", "soak_server"}  # which tests record: make soak
    assert set(remade) - recorded == {"nothing"}


def test_every_picture_of_the_docs_is_remade_by_a_drawing_or_a_measurement():
    """A measurement draws its own into the folder that --pictures names."""
    drawn = {file for each in DRAWINGS.values() for file in re.findall(r"docs/[\w/*]+\.png", each.facts["Remakes"])}
    measured = {"loss.png", "skills.png", "growth.png", "beliefs.png", "frontier.png", "over_optimization.png"}
    left = {file for file in (ROOT / "docs").rglob("*.png") if "experiments" not in file.parts}
    for pattern in drawn:
        found = set(ROOT.glob(pattern))
        assert found, pattern
        left -= found
    assert {file.name for file in left} == measured | {"embeddings.png"}  # `pellucid map` draws this one


def test_the_list_names_the_pages_that_show_what_is_remade(capsys):
    measure.main(["--list"])
    listed = capsys.readouterr().out
    assert "\nsaving\n    The share of a run's training time that its checkpoints cost.\n" in listed
    assert "    remakes: saving (docs/speed.md)\n    takes: half a minute\n    needs: nothing\n" in listed
    draw.main(["--list"])
    assert "    remakes: docs/roofline.png\n" in capsys.readouterr().out


def test_a_name_that_is_not_there_is_an_error_that_names_all(capsys):
    with pytest.raises(SystemExit, match="error: speed: there is no such one; choose among adapters, beliefs, "):
        measure.main(["speed"])
    with pytest.raises(SystemExit):
        measure.main([])
    assert "python scripts/measure.py --list" in capsys.readouterr().out


def test_every_command_that_a_page_shows_or_make_gpu_types_can_be_typed():
    shown = set()
    for page in pages():
        shown |= set(re.findall(r"`python scripts/(measure|draw)\.py (\w[^`]*)`", page.read_text("utf-8")))
    assert len(shown) > 20
    of_parts = (part.command for part in gpu.parts_of(Path("text.txt"), Path("nanoGPT")))
    shown |= {("measure", shlex.join(command[2:])) for command in of_parts if command[1].endswith("measure.py")}
    for function, line in shown:
        name, *arguments = shlex.split(line)
        folder = {"measure": "measurements", "draw": "drawings"}[function]
        parser = registry.parser_for(registry.chosen(folder, function, [name], "")[1], name)
        parser.add_argument("--record", action="store_true")
        parser.parse_intermixed_args(arguments)


def measured(run: Path, *parts: str, turns: int = 3, in_full: bool = False, to: Path | None = None) -> Iterator[Entry]:
    """parts: of it."""
    Path("left.txt").touch()
    yield Entry("a", {"row": {"turns": turns, "in full": in_full}}, parts, "on paper", "fp64")
    yield Entry("b", {"run": str(run), "part": {"to": {"as it was given": str(to)}}, "lines": ["one", "two"]})


def test_the_parameters_of_a_function_are_the_options_of_its_command(monkeypatch, tmp_path, capsys):
    recorded = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "chosen", lambda folder, function, arguments, about: ("made_up", measured))
    monkeypatch.setattr(measure, "record", lambda *entry_and_commit: recorded.append(entry_and_commit))
    monkeypatch.setattr(measure, "commit_of_code", lambda: "abcdef0")
    Path("demo").mkdir()
    measure.main(["made_up", "demo", "one", "two", "--turns", "5", "--in-full", "--to", "there"])
    assert recorded == []
    printed = capsys.readouterr().out
    assert "| a | turns | in full |\n|---|---:|---:|\n| row | 5 | 1 |\n" in printed
    assert f"b: run: {tmp_path / 'demo'}\n" in printed
    assert "| b: part | as it was given |\n|---|---:|\n| to | there |\n" in printed
    assert "b: lines\none\ntwo\n" in printed
    measure.main(["made_up", "run", "--record"])
    assert [(entry.name, commit) for entry, commit in recorded] == [("a", "abcdef0"), ("b", "abcdef0")]
    assert recorded[0][0][1:] == ({"row": {"turns": 3, "in full": False}}, (), "on paper", "fp64")
    assert [file.name for file in tmp_path.iterdir()] == ["demo"], "what a measurement writes goes with it"


def test_a_task_for_lm_eval_ends_a_story_where_its_own_moral_is_the_right_one(tmp_path):
    corpus = Drawn(tiny_fables(0, most=100), size=20, seed=0, validation_fraction=0.1)
    write_tasks(corpus, tmp_path, 2)
    rows = (tmp_path / "fables_moral.jsonl").read_text().splitlines()
    fables = list(corpus.documents("validation"))[:2]
    for row, fable in zip(map(json.loads, rows), fables, strict=True):
        assert f"{row['story']} {row['morals'][row['right']]}" == fable
    assert "multiple_choice" in (tmp_path / "fables_moral.yaml").read_text()
