"""The command line: one short function per command, exit codes and errors.

Heavy imports are inside the functions, so that `pellucid --help` answers at once. Results go to stdout, everything
else to stderr. Every failure ends in one line, `error: WHERE: WHAT; HOW TO FIX IT`, and a documented exit code.
"""

import logging
import os
import re
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer import Option

from pellucid.cli.terminal import Stopped, is_first, note, open_closed_streams
from pellucid.errors import ConfigError, NonFiniteError, PellucidError, explained
from pellucid.runtime.processes import stop_signals
from pellucid.version import __version__

PLACE_OF_A_TEXT = {
    **dict.fromkeys(("pellucid generate", "pellucid explain", "pellucid chat"), "a text goes after --prompt, quoted"),
    **dict.fromkeys(("pellucid embed", "pellucid map", "pellucid probe"), "a text goes after --text, quoted"),
    "pellucid evaluate": "a text is given as a file, after --text",
}

# In the order of `pellucid --help`: each command, and the function in cli/ that it runs.
COMMANDS = {
    "prepare": "training.prepare",
    "train": "training.train",
    "generate": "writing.generate",
    "chat": "writing.chat",
    "evaluate": "looking.evaluate",
    "contest": "looking.contest",
    "explain": "looking.explain",
    "heads": "looking.heads",
    "serve": "serving.serve",
    "train-for-page": "serving.train_for_page",
    "lab": "serving.lab",
    "embed": "embedding.embed",
    "nearest": "embedding.nearest",
    "map": "embedding.draw_map",
    "probe": "embedding.probe",
    "tokenize": "looking.tokenize",
    "verify": "looking.verify",
    "cost": "configs.cost",
    "export": "exchange.export",
    "import": "exchange.import_",
    "merge": "exchange.merge",
    "quantize": "exchange.quantize",
    "experiment": "training.experiment",
    "experiment-run": "training.experiment_run",
    "learn": "learning.learn",
    "language": "languages.language",
    "configs": "configs.configs",
    "schema": "configs.schema",
}
HIDDEN = ("train-for-page", "experiment-run")


def app_for(command: str | None = None) -> typer.Typer:
    """The command line with this command alone, so that no other's file is loaded; with all if there is none such."""
    app = typer.Typer(
        epilog="Exit codes: 0 done; 2 usage or config; 3 data or tokenizer; 4 checkpoint; 5 input/output; 6 non-finite "
        "loss; 7 run directory in use; 8 out of memory; 9 a training process was lost; 129 a closed terminal; "
        "130 Ctrl-C; 143 SIGTERM. Add --debug to see the traceback of an error.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(pellucid)
    for name in [command] if command in COMMANDS else COMMANDS:
        file, function = COMMANDS[name].split(".")
        app.command(name, hidden=name in HIDDEN)(getattr(import_module(f"pellucid.cli.{file}"), function))
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"pellucid {__version__}")
        raise typer.Exit


def pellucid(
    _version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, use and look inside a decoder-only transformer that you can see through."""


def main() -> NoReturn:
    """Run a command and exit with its exit code."""
    open_closed_streams()
    os.environ["MPLBACKEND"] = "agg"  # a notebook's, which `!pellucid` inherits, may be unknown here
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    for number in stop_signals():
        signal.signal(number, _stop)
    logging.addLevelName(logging.INFO, "note")
    logging.addLevelName(logging.WARNING, "warning")
    handler, log = logging.StreamHandler(), logging.getLogger("pellucid")
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log.handlers = [handler]
    log.setLevel(logging.INFO if is_first() else logging.ERROR)
    is_bare = len(sys.argv) == 1
    try:
        app = app_for(*sys.argv[1:2])
        exit_code = app(["--help"] if is_bare else None, prog_name="pellucid", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        cause = error.__context__ if isinstance(error, SystemExit) else error  # typer makes an exit of the first
        if isinstance(cause, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)  # `pellucid generate … | head` has read enough
        if isinstance(error, Stopped):
            note("stopped")
        if debug or isinstance(error, SystemExit):
            raise
        sys.exit(_report(error))
    sys.exit(exit_code or (2 if is_bare else 0))


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    Stopped.asked_for = 128 + number
    raise Stopped(128 + number)


def _report(error: BaseException) -> int:
    """Print an error in one line and return its exit code; raise an unforeseen one again."""
    if hasattr(error, "format_message"):  # typer's own errors: an unknown option, a missing argument
        path = " ".join(["pellucid", *(word for word in sys.argv[1:2] if word in COMMANDS)])
        where = getattr(getattr(error, "ctx", None), "command_path", path)
        what, fix = _plain_message(error), f"see `{where} --help`"
        is_text = "unexpected extra argument" in what or re.match("No such option: --(text|prompt|file)", what)
        if is_text and where in PLACE_OF_A_TEXT:
            fix = f"{PLACE_OF_A_TEXT[where]}; {fix}"
        if what.startswith("No such option: --") and where in ("pellucid train", "pellucid cost", "pellucid prepare"):
            fix = f"a key of the config has no dashes: train.steps=100; {fix}"
        error = ConfigError(where, what, fix)
    elif isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("pellucid"):
        error = ConfigError(error.name, "this package is missing", "install Pellucid again, with all that it needs")
    else:
        error = explained(error)
    if not isinstance(error, PellucidError):
        raise error
    if is_first() or not isinstance(error, NonFiniteError):  # every rank raises this one
        print(f"error: {error}", file=sys.stderr, flush=True)
    return error.exit_code


def _plain_message(error: Any) -> str:
    """Typer's message, in plain words where newer versions of typer pass on pydantic's."""
    message = str(error.format_message()).rstrip(".").replace("Value error, ", "")
    if not hasattr(error.__cause__, "errors"):
        return message
    fault = error.__cause__.errors()[0]
    words = {
        "int_parsing": "is not a whole number",
        "float_parsing": "is not a number",
        "greater_than_equal": "is not at least {ge}",
        "less_than_equal": "is not at most {le}",
    }
    if fault["type"] not in words:
        return message
    return f"{message.partition(': ')[0]}: {fault['input']!r} {words[fault['type']].format(**fault.get('ctx', {}))}"
