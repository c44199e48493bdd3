"""Random damage to a config, random values in it, and random YAML: the reader answers with a config or with one line,
and nothing else. A config that it accepts can be written out and read again.
"""

import copy
import time
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bad_configs import bases, dump
from pellucid.config.load import parse_run_config, run_config_to_yaml
from pellucid.config.run import RunConfig
from pellucid.errors import CheckpointError, ConfigError

SOAK_SECONDS = 300

BASES = bases()
TEXTS = [dump(data) for data in BASES]
PIECES = st.sampled_from(
    [
        *(": ", ":\n", "- ", "? ", "&a ", "*a", "<<: ", "|\n", ">-\n", "---\n", "...\n", "%YAML 1.1\n"),
        *("!!python/name:os.system ", "!!int ", "!!bool ", "!!float ", "!!timestamp ", "!!set ", "!!binary ", "! "),
        *("{", "}", "[", "]", ",", "#", '"', "'", "\\", "\t", "\n", "\r", "  ", "\0", "\x1b[31m", "\u2028"),
        *("\ufeff", "\ud800", "~", "null", "yes", ".nan", "-.inf", "1e400", "0x10", "0o7", "1_000", "12:30:45"),
        *("3e-4", "08", "+.5", "0b1", "'1e5'", '"\\ud800"', '"\\x85"', '"\\L', '"\\U00110000"', "\x85", "\x7f"),
    ]
)
NEARLY_NUMBERS = st.from_regex(r"[-+]?[0-9_]*\.?[0-9]*([eE][-+]?[0-9]+)?", fullmatch=True)
JUNK = PIECES | NEARLY_NUMBERS | st.text(max_size=6) | st.integers().map(str) | st.floats().map(str)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A valid config after a few slips: text put in and taken out, lines doubled, moved and indented."""
    lines = draw(st.sampled_from(TEXTS)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        slip = draw(st.sampled_from(["insert", "remove", "double", "move", "indent", "value", "letters"]))
        line = lines[at]
        if slip == "insert":
            column = draw(st.integers(0, len(line)))
            lines[at] = line[:column] + draw(JUNK) + line[column:]
        elif slip == "remove" and len(lines) > 1:
            del lines[at]
        elif slip == "double":
            lines.insert(at, line)
        elif slip == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif slip == "indent":
            lines[at] = " " * draw(st.integers(1, 4)) + line
        elif slip == "value":
            lines[at] = f"{line.partition(':')[0]}: {draw(JUNK)}\n"
        else:
            column = draw(st.integers(0, len(line)))
            lines[at] = line[:column] + line[column + draw(st.integers(1, 6)) :]
    return "".join(lines)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | JUNK,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JUNK, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def with_other_values(draw: st.DrawFn) -> str:
    """A valid config, readable as YAML, with other texts, other values at some keys, or other keys."""
    data = copy.deepcopy(draw(st.sampled_from(BASES)))
    data["sample"]["prompt"] = draw(NEARLY_NUMBERS | JUNK)
    for _ in range(draw(st.integers(0, 2))):
        section: dict[str, Any] = data
        key = draw(st.sampled_from(sorted(section)))
        while isinstance(section[key], dict) and section[key] and draw(st.integers(0, 5)):
            section = section[key]
            key = draw(st.sampled_from(sorted(section)))
        section[draw(st.just(key) | JUNK)] = draw(VALUES)
    style = draw(st.sampled_from([None, True, False]))
    return str(yaml.safe_dump(data, sort_keys=False, default_flow_style=style, allow_unicode=draw(st.booleans())))


ANYTHING = st.lists(JUNK, max_size=12).map("".join)
KEYS = st.sampled_from(["seed", "model", "sample.prompt", "train.steps", "corpus.data_files.train"])


def outcome(text: str, overrides: list[str]) -> tuple[RunConfig | None, str]:
    """The config that the text is, or the line that says why it is none."""
    try:
        return parse_run_config(text, "fuzzed.yaml", overrides), ""
    except (ConfigError, CheckpointError) as error:  # the second names a run of `start_from` that is not there
        return None, str(error)


def test_fuzz_config_reader(tally, soak):
    n_read, n_refused = 0, 0

    @settings(
        max_examples=1500 if soak else 150,
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        damaged() | with_other_values() | ANYTHING,
        st.just([]) | st.lists(st.tuples(KEYS, JUNK), max_size=1),
    )
    def read(text: str, overrides: list[tuple[str, str]]) -> None:
        nonlocal n_read, n_refused
        with tally.attempt((text, overrides)):
            config, refusal = outcome(text, [f"{key}={value}" for key, value in overrides])
            if config is None:
                assert refusal.isprintable()
                assert "; " in refusal
                assert len(refusal) < 400
                n_refused += 1
            else:
                written = run_config_to_yaml(config).encode()
                assert parse_run_config(written.decode(), "written.yaml") == config
                n_read += 1

    end = time.monotonic() + SOAK_SECONDS
    read()
    while soak and time.monotonic() < end:
        read()
    assert min(n_read, n_refused) >= 5
