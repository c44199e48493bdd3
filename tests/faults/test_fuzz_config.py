"""Random damage to a config, and random YAML: the reader answers with a config or with one line, and nothing else."""

import time

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from bad_configs import bases, dump
from pellucid.config.load import parse_run_config, run_config_to_yaml
from pellucid.errors import ConfigError

SOAK_SECONDS = 300

TEXTS = [dump(data) for data in bases()]
PIECES = st.sampled_from(
    [
        *(": ", ":\n", "- ", "? ", "&a ", "*a", "<<: ", "|\n", ">-\n", "---\n", "...\n", "%YAML 1.1\n"),
        *("!!python/name:os.system ", "!!int ", "!!bool ", "!!float ", "!!timestamp ", "!!set ", "!!binary ", "! "),
        *("{", "}", "[", "]", ",", "#", '"', "'", "\\", "\t", "\n", "\r", "  ", "\0", "\x1b[31m", "\u2028"),
        *("\ufeff", "\ud800", "~", "null", "yes", ".nan", "-.inf", "1e400", "0x10", "0o7", "1_000", "12:30:45"),
    ]
)
JUNK = PIECES | st.text(max_size=6) | st.integers().map(str) | st.floats().map(str)


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


ANYTHING = st.lists(JUNK, max_size=12).map("".join)


def test_fuzz_config_reader(tally, soak):
    @settings(
        max_examples=1500 if soak else 300,
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        damaged() | ANYTHING, st.lists(st.tuples(st.sampled_from(["seed", "model", "train.steps"]), JUNK), max_size=1)
    )
    def read(text: str, overrides: list[tuple[str, str]]) -> None:
        with tally.attempt((text, overrides)):
            try:
                config = parse_run_config(text, "fuzzed.yaml", [f"{key}={value}" for key, value in overrides])
            except ConfigError as error:
                if not str(error).isprintable() or "; " not in str(error) or len(str(error)) > 1000:
                    raise AssertionError("not one line") from error
            else:
                assert parse_run_config(run_config_to_yaml(config), "written.yaml") == config

    end, round_ = time.monotonic() + SOAK_SECONDS, 0
    while True:
        seed(round_)(read)()
        round_ += 1
        if not soak or time.monotonic() > end:
            break
    assert tally.tries >= 300
