"""Tables fit into any terminal, and a pipe gets them whole."""

import re

import pytest
from rich.cells import cell_len

from pellucid.tables import columns, table

HEADING = ("skill", "share of tokens", "excess", "right where certain", "what it is")
ROWS = [
    ("choice", "29.0%", "0.25900", "", "what a story is free to choose"),
    ("count", "0.2%", "+1.50 ±0.02", "99.23%", "a number said before, and said again"),
    ("物語", "1.9%", "-0.00003", "100.00%", "[bold]"),
]


TO_PASTE = ("| fables |", "    pellucid train ")  # lines that stay whole
# A command, the row that it marks, if any, and lines in its output.
COMMANDS = {
    "contest demo --fresh 2": "excess",
    "cost debug": None,
    "configs": None,
    "embed demo --text 狐狸和乌鸦狐狸和乌鸦狐狸和乌鸦狐狸和乌鸦 --text 🦊 --layer 1": None,
    "embed demo --per token --text fox": None,
    "experiment experiments/sums --dry-run": "no weight decay",
    "explain demo --fable 1": "␣called",
    "explain demo --prompt 狐狸 --attention all": "\\xe7",
    "explain demo --prompt Once_upon_a_狐 --attention 1.2": "␣ ",
    "heads demo --fables 2": "1.2",
    "language weather": "entropy",
    "learn": "0 Guess the next word",
    "learn 0": None,
    "nearest demo 狐 --documents 3": None,
    "probe demo --documents 8": "layer",
    "tokenize 狐狸狐狸_hedgehogs_hedgehogs": None,
    "tokenize unbelievable_hedgehogs --run demo": None,
    "verify demo": None,
}


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of so many columns; and what is shown there, without its colours."""

    def shown(columns, *given, **more):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        return table(*given, **more)

    return shown


def plain(text):
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def test_a_pipe_gets_a_line_for_each_row_whatever_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    lines = table(HEADING, ROWS, {1: "bold"}, above=["in words: " + 9 * "on and on "]).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert re.split("  +", lines[1]) == [*HEADING]
    for line, row in zip(lines[2:], ROWS, strict=True):
        assert re.split("  +", line) == [cell for cell in row if cell]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_in_a_terminal_no_line_is_wider_no_number_is_broken_and_nothing_is_lost(terminal, columns):
    shown = plain(terminal(columns, HEADING, ROWS, above=["many words " * 20]))
    assert max(map(cell_len, shown.splitlines())) <= columns
    for row in ROWS:
        assert all(cell in shown for cell in row[:4])
        assert all(word in shown for word in row[4].split())
    first_of_each_part = [line for line in shown.splitlines() if line.startswith("物語")]
    assert len(first_of_each_part) == (1 if columns > 40 else 2)


def test_the_row_that_matters_is_marked_in_a_terminal_alone(terminal, monkeypatch):
    assert "\x1b" not in table(HEADING, ROWS, {1: "bold"})
    marked = [line for line in terminal(120, (), ROWS, {1: "bold"}).splitlines() if "\x1b[1m" in line]
    assert [plain(line).split()[0] for line in marked] == ["count"]


@pytest.mark.parametrize("width", [36, 60])
def test_what_is_cut_ends_in_dots_and_has_a_line_with_all_its_numbers(terminal, width):
    rows = [("物語" * 9, "0.259", "what a story is free to choose"), ("of", "1.500", "物語")]
    options = {"words": (0, 2), "is_cut": True}
    _, long, short = plain(terminal(width, ("word", "nats", "what it is"), rows, **options)).splitlines()
    assert cell_len(long) <= width
    assert "…" in long
    assert cell_len(long.partition("0.259")[0]) == cell_len(short.partition("1.500")[0])


def test_facts_are_wrapped_beside_their_names(terminal):
    facts = {"floor": "0.5117 nats/token: the best that any model can do", "loss": "0.5140"}
    assert table((), facts.items()).splitlines()[1] == "loss   0.5140"
    assert plain(terminal(40, (), facts.items())).splitlines()[1].startswith("       ")


def test_lines_are_as_wide_as_the_terminal_or_as_they_need_to_be(terminal):
    assert columns(100) == 100
    for width, found in ((80, 80), (120, 100)):
        terminal(width, (), ROWS)
        assert columns(100) == found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_every_number_in_any_terminal_and_the_row_that_matters(
    command, pellucid, monkeypatch, tmp_path
):
    arguments = [word.replace("_", " ") for word in command.split()]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pellucid.experiments.forecast.step_seconds", lambda *_: 0.5)
    shown = {"pipe": pellucid(*arguments).stdout}
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")  # one that knows no bold: the row is marked in the text
    shown["dumb"] = pellucid(*arguments).stdout
    lines = shown["dumb"].splitlines()
    assert max(cell_len(line) for line in lines if not line.startswith(TO_PASTE)) <= 60
    assert numbers(shown["pipe"]) <= numbers(shown["dumb"])
    marked = [line.removeprefix("▸").strip() for line in lines if line.startswith("▸")]
    assert "\x1b" not in shown["pipe"] + shown["dumb"]
    assert bool(marked) == (COMMANDS[command] is not None)
    assert all(line.startswith(COMMANDS[command]) for line in marked[:1])


def numbers(text):
    return set(re.findall(r"(?<![\w.])[+−-]?\d[\d,]*\.\d+(?:e[+-]\d+)?%?", text))
