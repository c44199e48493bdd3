"""Every measured number on a page is the one in docs/results.json."""

import json
import re
import subprocess
from datetime import date
from functools import partial

import pytest
from scripts import results
from scripts.results import Entry, figure, filled, pages, read, recipe_hash

ENTRIES = read()
PAGES = [page for page in pages() if re.search(results.MARK + ")", page.read_text(encoding="utf-8"))]
# Cores, CPU, the kernels that PyTorch used, and a GPU if there was one.
MACHINE = re.compile(r"\d+ cores?, \w.* \((AMX|AVX512|AVX2|DEFAULT|NO AVX|SVE\d*|VSX|Z VECTOR)\)(, .+)?")
NAME = re.compile(r"<!-- result ([^/<>]+?)(?:/[^<>]*)? -->")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_marked_number_is_the_recorded_one(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text, ENTRIES) == text, "run `python scripts/results.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_mark_shows_something_that_was_measured_on_a_machine_the_page_names(page):
    text = page.read_text(encoding="utf-8")
    forms = (results.NUMBER, results.TABLE, results.TEXT)
    assert len(re.findall(results.MARK + ")", text)) == sum(len(form.findall(text)) for form in forms)
    unwrapped = " ".join(text.split())
    for name in {*NAME.findall(text)} - {"experiments"}:
        assert page.parent.name == "lessons" or ENTRIES[name]["machine"] in unwrapped, name


def test_no_line_of_a_paragraph_begins_with_a_mark():
    """There, Markdown sees the start of a block of HTML: the paragraph is cut in two, and the line stays as typed."""
    for page in PAGES:
        assert not re.search(rf"^ {{0,3}}{results.MARK}).", page.read_text(encoding="utf-8"), re.MULTILINE), page


# What these say of an experiment is not a number of one run: tests/experiments/test_quoted_results.py, or nothing.
WITHOUT_A_MARK = {"norms", "accumulation", "scaling"}


def test_what_a_lesson_says_of_an_experiment_is_marked():
    """Runs are made again: lesson 14 went on printing figures that had been withdrawn."""
    quoted = set()
    for page in (results.ROOT / "lessons").glob("*.md"):
        for paragraph in page.read_text(encoding="utf-8").split("\n\n"):
            for name in {*re.findall(r"docs/experiments/(\w+)/report\.md", paragraph)} - WITHOUT_A_MARK:
                assert f"<!-- result experiments/{name}/" in paragraph, f"{page.name}: {paragraph}"
                quoted.add(name)
    assert "lora_ranks" in quoted


def test_a_mark_finds_the_run_of_an_experiment_by_label_seed_and_column(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "EXPERIMENTS", tmp_path)
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up/results.csv").write_text("label,seed,obeys\na/b,0,0.25\na/b,1,0.5\nc,0,0.125\n")
    page = "rank <!-- result experiments/made_up/a/b/{} -->9.9 %"
    found = {"seed 0/obeys": "0.2", "seed 1/obeys (%)": "50.0", "mean/obeys (%)": "37.5", "lowest/obeys (%)": "25.0"}
    for path, shown in found.items():
        assert filled(page.format(path), {}) == page.format(path).replace("9.9", shown)
    for path in ("seed 2/obeys", "median/obeys", "seed 0/obeyed"):
        with pytest.raises(KeyError):
            filled(page.format(path), {})
    with pytest.raises(KeyError, match="made_up has no run 'b'"):
        figure("experiments/made_up/b/mean/obeys", {})


def test_every_line_of_the_table_of_measurements_is_recorded():
    text = (results.ROOT / "docs/speed.md").read_text(encoding="utf-8")
    table = text[text.index("## All in one table") :].split("\n\n")[2]
    lines = table.splitlines()[2:]
    assert lines
    assert [line for line in lines if "<!-- result " not in line] == []


def test_every_entry_says_where_when_and_how_it_was_measured_and_is_shown():
    shown = {name for page in PAGES for name in NAME.findall(page.read_text(encoding="utf-8"))}
    assert shown == {*ENTRIES, "experiments"}
    for name, entry in ENTRIES.items():
        assert list(entry) == ["machine", "numbers", "pytorch", "date", "commit", "command", "recipes", "figures"]
        assert entry["machine"] == "on paper" or MACHINE.fullmatch(entry["machine"]), name
        assert entry["numbers"] in ("bf16", "fp16", "fp32", "fp64")
        date.fromisoformat(entry["date"])
        assert re.fullmatch("[0-9a-f]{7,}", entry["commit"])


def test_a_recorded_command_names_files_and_no_folders_of_this_machine(monkeypatch):
    monkeypatch.setattr("sys.argv", ["elsewhere/tool", "/some/where/text.txt", "--pairs", "5"])
    assert results._command() == "tool text.txt --pairs 5"
    assert not [name for name, entry in ENTRIES.items() if " /" in entry["command"]]


def test_a_changed_recipe_keeps_no_old_figures():
    old = {
        name
        for name, entry in ENTRIES.items()
        for recipe, hash_then in entry["recipes"].items()
        if hash_then != recipe_hash(recipe)
    }
    assert not old, "measure these again with --record, or drop them and what pages say of them"


def test_an_entry_has_the_hash_of_each_recipe_that_its_command_names():
    stems = [file.stem for file in (results.ROOT / "configs").glob("*.yaml")]
    for name, entry in ENTRIES.items():
        named = re.findall(rf"(?:configs|checkpoints)/({'|'.join(stems)})\b", entry["command"])
        assert set(named) <= {recipe.partition("/")[0] for recipe in entry["recipes"]}, name


def test_every_entry_was_measured_at_a_commit_that_can_be_looked_up():
    git = partial(subprocess.run, cwd=results.ROOT, capture_output=True, text=True)
    if git(["git", "rev-parse", "--is-shallow-repository"]).stdout.strip() != "false":
        pytest.skip("the history is not here")
    commits = {line[:7] for line in git(["git", "rev-list", "HEAD"]).stdout.splitlines()}
    assert [name for name, entry in ENTRIES.items() if entry["commit"][:7] not in commits] == []


def test_a_recipe_is_what_is_learned_and_how_and_not_how_it_is_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "ROOT", tmp_path)
    (tmp_path / "configs").mkdir()

    def hash_of(text: str) -> str:
        (tmp_path / "configs/a.yaml").write_text(text)
        return recipe_hash("a")

    recipe = hash_of("name: a\ntrain: {steps: 5, batch_size: 2}\nevaluation: {every_steps: 1}\n")
    same = "# a comment\ntrain:\n  batch_size: 2  # rows\n  steps: 5\nevaluation: {every_steps: 2}\nsample: {seed: 1}\n"
    assert hash_of(same) == recipe
    assert hash_of(same.replace("steps: 5", "steps: 6")) != recipe
    assert hash_of(same.replace("steps: 5", "steps: 5\n  log_every_steps: 1")) == recipe
    assert hash_of(same.replace("{every_steps: 2}", "{every_steps: 2, max_tokens: 9}")) != recipe, "a loss on less text"
    stops = "train: {steps: 5}\nevaluation: {every_steps: 1, stop_at_val_loss: 2}\n"
    assert hash_of(stops) != hash_of(stops.replace("every_steps: 1", "every_steps: 2"))


def test_the_shape_of_a_recipe_is_neither_its_rate_nor_its_length(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "ROOT", tmp_path)
    (tmp_path / "configs").mkdir()
    of_model = "model: {d_model: 8}\ntokenizer: {vocab_size: 300}\ndata: {}\n"
    text = of_model + "optimizer: {lr: 1}\ntrain: {steps: 5, batch_size: 2}"

    def shape_of(text: str) -> str:
        (tmp_path / "configs/a.yaml").write_text(text)
        return recipe_hash("a/shape")

    assert shape_of(text.replace("steps: 5", "steps: 6").replace("lr: 1", "lr: 2")) == shape_of(text)
    assert shape_of(text.replace("d_model: 8", "d_model: 9")) != shape_of(text)
    assert shape_of(text.replace("batch_size: 2", "batch_size: 3")) != shape_of(text)


def test_a_page_keeps_its_decimals_and_its_words():
    entries = {"speed": {"figures": {"small": {"ratio": 2.049, "tokens": 12345}, "text": ["a", "", "b"]}}}
    page = "About <!-- result speed/small/ratio -->1.5 times.\n\n<!-- result speed/text -->\n\n    old\n\nEnd.\n"
    expected = (
        "About <!-- result speed/small/ratio -->2.0 times.\n\n<!-- result speed/text -->\n\n    a\n\n    b\n\nEnd.\n"
    )
    assert filled(page, entries) == expected
    del entries["speed"]["figures"]["text"]
    table = "<!-- result speed -->\n\n| size | tokens | ratio |\n|---|---:|---:|\n| small | 1 | 9.99 |\n"
    assert filled(table, entries).endswith("| small | 12,345 | 2.05 |\n")
    with pytest.raises(KeyError, match="large"):
        filled(table + "| large | 1 | 1 |\n", entries)
    with pytest.raises(KeyError, match="unknown"):
        figure("speed/small/unknown", entries)


@pytest.fixture
def committed(monkeypatch):
    """A repository in which, to begin with, nothing is changed; a test may change that."""
    fables = (results.ROOT / "configs/fables.yaml").read_text(encoding="utf-8")
    answers = {"status": "", "rev-parse": "abcdef0", "show": fables}
    monkeypatch.setattr(results, "_output", lambda _git, command, *options: answers[command])
    return answers


def test_what_is_recorded_is_read_back(tmp_path, monkeypatch, committed):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr("sys.argv", [str(results.ROOT / "scripts/measure.py"), "benchmark", "--pairs", "5"])
    (tmp_path / "results.json").write_text("{}")
    results.record(Entry("b", {"ratio": 2.5}, ["fables"]))
    results.record(Entry("a", {}, numbers="fp64"))
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(found) == ["a", "b"]
    assert found["b"]["figures"] == {"ratio": 2.5}
    assert found["b"]["command"] == "python scripts/measure.py benchmark --pairs 5"
    assert found["b"]["recipes"] == {"fables": recipe_hash("fables")}
    assert found["a"]["numbers"] == "fp64"
    assert MACHINE.fullmatch(found["b"]["machine"])
    assert list(found["b"]) == list(next(iter(ENTRIES.values())))


def test_a_figure_of_code_that_is_not_committed_is_refused(committed):
    committed["status"] = " M src/pellucid/model/decoder.py"
    with pytest.raises(SystemExit, match=r"not committed:\n M src/pellucid/model/decoder.py"):
        results.commit_of_code()


def test_a_figure_names_the_code_and_the_recipe_that_its_measurement_began_with(tmp_path, monkeypatch, committed):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    (tmp_path / "results.json").write_text("{}")
    monkeypatch.setattr(results, "commit_of_code", lambda: pytest.fail("asked again when code may have changed"))
    committed["show"] = "train: {steps: 5}"  # as the recipe was then
    results.record(Entry("a", {"ratio": 2.5}, ["fables"]), "abcdef0")
    entry = results.read()["a"]
    assert entry["commit"] == "abcdef0"
    assert entry["recipes"]["fables"] != recipe_hash("fables")


def test_the_age_of_an_entry_is_what_was_committed_since(capsys, monkeypatch):
    name, entry = next((name, entry) for name, entry in ENTRIES.items() if entry["recipes"])
    asked = []
    monkeypatch.setattr(
        results,
        "_output",
        lambda *command: asked.append(command) or ("3" if "--count" in command else "1234567 So it was"),
    )
    results.print_ages({name: entry})
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: {entry['commit']} of {entry['date']}, 3 commits to src since",
        "    1234567 So it was",
    ]
    assert f"configs/{next(iter(entry['recipes']))}.yaml" in asked[1]


def test_the_age_of_an_entry_whose_commit_is_not_here_is_said_to_be_unknown(capsys):
    name, entry = next(iter(ENTRIES.items()))
    results.print_ages({name: {**entry, "commit": "0000000"}})
    assert capsys.readouterr().out == f"{name}: 0000000 of {entry['date']}, which is not in the history here\n"
