"""Every measured number on a page is the one in docs/results.json."""

import json
import re
from datetime import date

import pytest
from scripts import results
from scripts.results import figure, filled, pages, read

ENTRIES = read()
PAGES = [page for page in pages() if re.search(results.MARK + ")", page.read_text(encoding="utf-8"))]
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
    for name in NAME.findall(text):
        assert ENTRIES[name]["machine"] in unwrapped, name


def test_every_line_of_the_table_of_measurements_is_recorded():
    text = (results.ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("## Measured") :].split("\n\n")[2]
    lines = table.splitlines()[2:]
    assert lines
    assert [line for line in lines if "<!-- result " not in line] == []


def test_every_entry_says_where_when_and_how_it_was_measured_and_is_shown():
    shown = {name for page in PAGES for name in NAME.findall(page.read_text(encoding="utf-8"))}
    assert shown == set(ENTRIES)
    for entry in ENTRIES.values():
        assert set(entry) == {"machine", "pytorch", "date", "commit", "command", "figures"}
        date.fromisoformat(entry["date"])
        assert re.fullmatch("[0-9a-f]{7,}", entry["commit"])


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


def test_what_is_recorded_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr("sys.argv", [str(results.ROOT / "scripts/benchmark.py"), "--pairs", "5"])
    (tmp_path / "results.json").write_text("{}")
    results.record("b", {"ratio": 2.5})
    results.record("a", {})
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(found) == ["a", "b"]
    assert found["b"]["figures"] == {"ratio": 2.5}
    assert found["b"]["command"] == "python scripts/benchmark.py --pairs 5"
    assert re.match(r"\d+ cores, \w+", found["b"]["machine"])
