"""F15: a wrong config ends in one line with the key's path and line, before anything is done."""

import os
from pathlib import Path

import pytest

from bad_configs import SCHEMA, Case, bases, cases, dotted, dump, variants
from pellucid.config.load import load_run_config, parse_run_config
from pellucid.errors import ConfigError
from tiny_run import assert_one_error_line


@pytest.fixture(scope="module")
def all_cases() -> list[Case]:
    return list(cases())


def refusal(text: str, *overrides: str) -> str:
    """The one line that says what is wrong."""
    with pytest.raises(ConfigError) as refused:
        parse_run_config(text, "case.yaml", overrides)
    return checked(str(refused.value))


def checked(line: str) -> str:
    assert line.isprintable()
    assert len(line) < 400
    where_and_what, _, fix = line.partition("; ")
    assert ": " in where_and_what
    assert fix
    return line


def judge(case: Case) -> None:
    line, where = refusal(case.text), f"case.yaml:{case.line}: {dotted(case.path)}: "
    assert line.startswith(where), (where, line)
    assert case.says in line


def test_f15_a_wrong_config_ends_a_command_in_that_line_before_anything_is_done(tmp_path, monkeypatch, pellucid):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    Path("case.yaml").write_text(BASE.replace("seed: ", "seed: x"))
    before = sorted(tmp_path.iterdir())
    lines = {("case.yaml",): "seed: 'x", ("base.yaml", "seed=x"): "seed: 'x", ("absent.yaml",): "no such file"}
    for arguments, says in lines.items():
        result = pellucid("cost", *arguments)
        assert_one_error_line(result, 2, says)
        assert result.stdout == ""
        checked(result.stderr.removesuffix("\n"))
    assert sorted(tmp_path.iterdir()) == before


def test_f15_every_wrong_config_that_the_schema_allows_to_make(all_cases, tally, soak):
    """The short form: every eighth of the wrong values, and of the keys that are misspelled or missing."""
    values = [case for case in all_cases if case.what not in ("misspelled", "missing")]
    names = [case for case in all_cases if case.what in ("misspelled", "missing")]
    for case in [*names, *values] if soak else [*names[::8], *values[::8]]:
        with tally.attempt((case.key, case.what)):
            judge(case)


def test_f15_the_cases_cover_every_key_of_the_schema(all_cases):
    assert len(all_cases) >= 150
    all_sections = [SCHEMA, *SCHEMA["$defs"].values()]
    keys = {(section["title"], key) for section in all_sections for key in section["properties"]}
    required = {(section["title"], key) for section in all_sections for key in section.get("required", ())}
    # Without its type a model section is a decoder's, so this key alone is neither missing nor misspelled.
    types = {(model["title"], "type") for model in variants(SCHEMA["properties"]["model"]).values()}
    types -= {("DecoderConfig", "type")}
    assert {case.key for case in all_cases if case.what == "misspelled"} == keys - types
    assert {case.key for case in all_cases if case.what == "missing"} == required - types
    assert {case.key for case in all_cases if case.what not in ("misspelled", "missing")} == keys - types


BASE = dump(bases()[0])


def with_line(text: str, before: str = "seed: ") -> tuple[str, int]:
    """The base with other lines in place of the one that begins with `before`, and where they begin."""
    lines = BASE.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith(before))
    return "".join([*lines[:at], text, *lines[at + 1 :]]), at + 1


SLIPS = {
    "a key twice": ("seed: 1\nseed: 2\n", 1, "seed: this key appears twice"),
    "a section twice": ("seed: 1\nmodel: {}\n", None, "model: this key appears twice"),
    "not a number": ("seed: .nan\n", 0, "seed: nan is of the wrong type"),
    "an object of Python": ('seed: !!python/object/apply:os.mkdir ["pwned"]\n', 0, "not readable as YAML"),
    "a long tag": (f"seed: !{'t' * 40_000} 5\n", 0, "not readable as YAML"),
    "an alias": ("seed: &a 5\nname: *a\n", 1, "alias *a"),
    "a merge key": ("seed: 5\n<<: {seed: 6}\n", 1, "<<: unknown key"),
    "a list as key": ("seed: 5\n? [a]\n: 1\n", 1, "a key must be a plain word"),
    "two values": ("seed: 5: 6\n", 0, "not readable as YAML"),
    "an open bracket": ("seed: [1, 2\n", None, "not readable as YAML"),
    "no space after the colon": ("seed:5\n", None, "not readable as YAML"),
    "400 digits": (f"seed: {10**400}\n", 0, "seed: this number is too large"),
    "40,000 digits": (f"seed: {'9' * 40_000}\n", 0, "seed: this number is too large"),
    "a number beyond all floats": ("optimizer: {type: sgd, lr: 1e999}\nseed: 5\n", None, "optimizer"),
    "a long value": (f"seed: {'a' * 40_000}\n", 0, "seed: "),
    "a long key": (f"seed: 5\n? {'k' * 40_000}\n: 1\n", 1, ": kkk"),
    "a long key twice": (f"seed: 5\n? {'k' * 20_000}\n: 1\n? {'k' * 20_000}\n: 1\n", 3, "this key appears twice"),
    "a type beside the sections": ("seed: 5\ntype: {a: 1}\n", 1, "type: unknown key"),
    "nothing as key": ("seed: 5\n?\n: 7\n", 1, ": '': unknown key"),
    "an empty key": ("seed: 5\n'': 7\n", 1, ": '': unknown key"),
    "half a character in a key": ('seed: 5\n"\\ud83d": x\n', 1, "half of a surrogate pair"),
    "an escape beyond the last character": ('seed: "\\U00110000"\n', 0, "not readable as YAML"),
    "an escape sequence in a key": ('"\\e[31mseed": 5\n', 0, "unknown key"),
    "a line break in a key": ('"se\\ned": 5\n', 0, "unknown key"),
    "an escape sequence in a value": ('name: "\\e[2J"\n', 0, "name: "),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_f15_slips_of_yaml(slip):
    inserted, offset, says = SLIPS[slip]
    text, line = with_line(inserted, "name: " if slip == "an escape sequence in a value" else "seed: ")
    where = "case.yaml:" if offset is None else f"case.yaml:{line + offset}: "
    assert refusal(text).startswith(where)
    assert says in refusal(text)


def bomb(depth: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    return "\n".join(lines)


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no `key: value` lines found"),
    "a word": (b"hello\n", "no `key: value` lines found"),
    "a bomb of aliases": (bomb(30).encode(), "alias *a0"),
    "1,000 open brackets": (b"name: " + b"[" * 1_000, "nested too deeply"),
    "1,000 levels of lists": (b"name:\n  " + b"- " * 1_000 + b"a\n", "case.yaml:2: nested too deeply"),
    "1,000 levels by indentation": (b"".join(b" " * i + b"a:\n" for i in range(1000)), "for a config"),
    "10 MB": (b"a: 1\n" * 2_000_000, "for a config"),
    "50,001 characters": (b"#" * 50_001, "for a config"),
    "NUL": (b"seed: 5\nname: a\0b\n", "case.yaml:2: the character U+0000 may not stand in YAML"),
    "Latin-1": (b"seed: 5\nname: \xe9lan\n", "case.yaml:2: byte 14 is not UTF-8"),
    "UTF-16": ("name: a\n".encode("utf-16"), "case.yaml:1: byte 0 is not UTF-8"),
    "a version of 5,000 digits": (
        b"%YAML 1." + b"1" * 5_000 + b"\n---\nname: a\n",
        "case.yaml:1: not readable as YAML",
    ),
    "two documents": (b"name: a\n---\nname: b\n", "not readable as YAML"),
    "JSON cut short": (b'{"name": "a", ', "not readable as YAML"),
}


@pytest.mark.parametrize("kind", FILES)
def test_f15_files_that_are_no_config(tmp_path: Path, kind):
    content, says = FILES[kind]
    (tmp_path / "case.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load_run_config(tmp_path / "case.yaml")
    assert says in checked(str(refused.value))


def test_f15_what_is_no_text_is_not_read_to_its_end_nor_waited_for(tmp_path: Path):
    """As `read_at_most` promises, which test_special_files.py holds to it."""
    os.mkfifo(tmp_path / "pipe")
    answers = {
        "/dev/zero": "for a config",
        tmp_path / "pipe": "no `key: value` lines",
        tmp_path: "this is a folder, not a",
    }
    for file, says in answers.items():
        with pytest.raises(ConfigError, match=says):
            load_run_config(Path(file))


def test_f15_a_config_may_come_from_windows_and_through_a_pipe():
    """`pellucid cost <(cat base.yaml)` is what a shell makes a pipe of. Here with a mark, and with other line ends."""
    reads, writes = os.pipe()
    os.write(writes, ("\ufeff" + BASE.replace("\n", "\r\n")).encode())
    os.close(writes)
    config = load_run_config(Path(f"/dev/fd/{reads}"))
    os.close(reads)
    assert config == parse_run_config(BASE, "base.yaml")


OVERRIDES = {
    "optimizer={}": "optimizer.type: this key is missing",
    "seed=*a": "seed: '*a' is of the wrong type",
    f"seed={'[' * 1_000}": "seed: nested too deeply",
    f"seed={'a' * 100_000}": "seed: 100,000 characters are too many for a config",
    "a" * 100_000: "'aaa",
    f"{'a' * 100_000}=3": "aaa…: unknown key; the keys here are",
    f"{'a.' * 60_000}b=1": "nested too deeply",
    "\x1b[31m=3": "\\x1b[31m: ",
    "seed=\udcff": "seed: ",
}


@pytest.mark.parametrize("override", OVERRIDES, ids=lambda override: override[:20])
def test_f15_a_wrong_override_says_that_it_came_from_the_command_line(override):
    line = refusal(BASE, override)
    assert line.startswith("command line: ")
    assert OVERRIDES[override] in line
