"""Code that an experiment brings of its own: the NAME.py beside its NAME.yaml.

    def measure(run: TrainedRun) -> dict[str, Any]     what else each trained run is measured by
    def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch     its figures of `type: own`
    def tables(numbers: pd.DataFrame) -> list[str]     paragraphs for the report, before those on skills

Each may be left out. Numbers that `measure` returns become columns of results.csv; other values, which JSON must be
able to hold, are kept in `RunResult.measured`, for `draw`.
"""

import hashlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pellucid.config.base import Section
from pellucid.config.experiment import ExperimentConfig
from pellucid.errors import ConfigError, PellucidError, in_short, is_out_of_memory

FUNCTIONS = ("measure", "draw", "tables")


class OwnFile(Section):
    """A NAME.py, known by path and contents. After an edit, runs are measured again, but not trained again."""

    path: str
    sha256: str


class OwnCode:
    """The functions of a NAME.py; none, if there is no such file.

    Reading it runs it. Raises ConfigError, with the line, if that fails or if it defines none of the functions.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: OwnFile | None = None
        self.module = ModuleType(f"pellucid_experiment_{path.stem}")
        if path.is_file():
            source = path.read_bytes()
            self.file = OwnFile(path=str(path), sha256=hashlib.sha256(source).hexdigest())
            sys.modules[self.module.__name__] = self.module
            with self._blamed("it cannot be imported"):
                exec(compile(source, str(path), "exec"), self.module.__dict__)
            if not any(map(self._function, FUNCTIONS)):
                what = f"its name makes it the code of {path.stem}.yaml, but it defines none of {', '.join(FUNCTIONS)}"
                raise ConfigError(str(path), what, "write one of them, or give the file another name")

    def _function(self, name: str) -> Callable[..., Any] | None:
        return getattr(self.module, name, None)

    def require_for(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for a figure of `type: own` that nothing draws."""
        own = [figure.title for figure in config.figures if figure.type == "own"]
        if own and not self._function("draw"):
            what = "it has no function draw" if self.file else "no such file"
            fix = "write draw(figure, results) there, or give the figure another type"
            raise ConfigError(str(self.path), f"{what}, and the figure {own[0]!r} is of type own", fix)

    def measure(self, run: object) -> dict[str, Any]:
        """Measure a trained run. ConfigError if that fails, or returns something that JSON cannot hold."""
        with self._blamed("measure failed"):
            measured = measure(run) if (measure := self._function("measure")) else {}
        try:
            return dict(json.loads(json.dumps(measured, allow_nan=False)))
        except (TypeError, ValueError) as error:
            what = f"measure returned no dict that JSON can hold ({error})"
            raise ConfigError(str(self.path), what, "return numbers, words, lists and dicts of them") from None

    def draw(self, figure: object, results: object) -> Any:
        """The figure as `draw` sketches it. Raises ValueError as it does, and ConfigError for other failures."""
        draw = self._function("draw")
        assert draw is not None, "see require_for"
        with self._blamed("draw failed", ValueError):
            return draw(figure, results)

    def tables(self, numbers: object) -> list[str]:
        with self._blamed("tables failed"):
            return list(tables(numbers)) if (tables := self._function("tables")) else []

    @contextmanager
    def _blamed(self, what: str, *passed: type[Exception]) -> Iterator[None]:
        """Turn an error of the file's code into a ConfigError with the line. Our own errors pass, and those given."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, (PellucidError, *passed)) or is_out_of_memory(error):
                raise
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(self.path)]
            lines += [error.lineno] if isinstance(error, SyntaxError) and error.filename == str(self.path) else []
            where = f"{self.path}:{lines[-1]}" if lines else str(self.path)
            fix = "correct it there, and run the command again"
            raise ConfigError(where, f"{what} ({in_short(error)})", fix) from error
