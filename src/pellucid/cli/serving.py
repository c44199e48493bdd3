"""The command that shows runs as a page: serve."""

import sys
import webbrowser
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from typer import Argument, Option

from pellucid.cli.arguments import DATA_ROOT, Which, load_config, read_run
from pellucid.cli.terminal import heavy_imports, note, say_where_new
from pellucid.errors import CheckpointError, ConfigError, InputOutputError, PellucidError

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig

HOST, PORT = "127.0.0.1", 8000
EVERYWHERE = ("0.0.0.0", "::")


def serve(
    runs: Annotated[
        list[Path], Argument(metavar="RUN...", parser=read_run, help="Run folders, or step folders in them; or demo.")
    ],
    port: Annotated[int, Option(metavar="N", min=0, max=65535, help="0 picks a free one.")] = PORT,
    host: Annotated[
        str | None, Option(metavar="ADDRESS", help="0.0.0.0 lets other machines in.", show_default=HOST)
    ] = None,
    opens: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    for_class: Annotated[
        bool, Option("--class", help="Let a class guess the next token on phones in the same network.")
    ] = False,
    allow_origin: Annotated[
        list[str] | None, Option(metavar="ORIGIN", help="Let pages of this site call the API; may be repeated.")
    ] = None,
    checkpoint: Which = "best",
    train: Annotated[
        Path | None, Option(metavar="CONFIG", help="Train RUN while serving, unless it is trained.")
    ] = None,
    tour: Annotated[
        Path | None, Option(metavar="FILE", help="Play this tour on the page, or a shipped one, as recall.")
    ] = None,
    export: Annotated[
        Path | None, Option(metavar="FILE", help="Write the page into one file that needs no server.")
    ] = None,
    prompt: Annotated[str | None, Option(metavar="TEXT", help="With --export: the text it opens with.")] = None,
) -> None:
    """Open the Model Microscope, a page about your runs. OpenAI's clients can call them."""
    if export is not None:
        is_given = {"--train": train is not None, "--open": opens, "--class": for_class}
        is_given |= {"--checkpoint": checkpoint != "best", "--port": port != PORT, "--host": host is not None}
        is_given["--allow-origin"] = allow_origin is not None
        if any(is_given.values()):
            what = "--export is for runs that are there, and writes all of their checkpoints"
            useless = ", ".join(name for name, given in is_given.items() if given)
            raise ConfigError("command line", what, f"leave out {useless}")
        export_runs(runs, export, prompt, tour)
        return
    if prompt is not None:
        raise ConfigError("command line", "--prompt is for --export", "add it, or type the text on the page")
    if train is not None and len(runs) > 1:
        raise ConfigError("command line", "--train is for one RUN", "leave out the others")
    from pellucid.web.server import listen

    host = host if host is not None else EVERYWHERE[0] if for_class else HOST
    with listen(host, port) as listening, _training(runs[0], train):
        for run_dir in runs if train is None else []:
            _require_run(run_dir)
        _show(runs, checkpoint, tour, host, listening, opens, for_class, allow_origin or [])


def _show(
    runs: list[Path],
    checkpoint: str,
    tour: Path | None,
    host: str,
    listening: socket,
    opens: bool,
    for_class: bool,
    allow_origins: list[str],
) -> None:
    """Serve the page and the API until they are stopped."""
    if listening.getsockname()[0] in EVERYWHERE:
        host = listening.getsockname()[0]  # "" and "0" mean this too
    view = {} if checkpoint == "best" else _view(runs[0], checkpoint)
    with heavy_imports():
        from pellucid.checkpoint.run_directory import steps_in
        from pellucid.config.load import load_run_config
        from pellucid.web.app import make_app  # imports PyTorch: two seconds, while the training starts
        from pellucid.web.descriptions import PARTS, left_out
        from pellucid.web.openai.api import openai_routes
        from pellucid.web.openai.served import served_runs
        from pellucid.web.server import run
        from pellucid.web.tours import files_of

    for config in [run_dir / "config.yaml" for run_dir in runs]:
        with suppress(PellucidError):  # the page itself shows why a run cannot be read
            if config.exists() and (lacks := left_out(load_run_config(config))):
                parts = ", ".join(PARTS[part] for part in lacks["parts"])
                note(f"{config.parent}: the page leaves out {parts}: {lacks['why']}")
    port = listening.getsockname()[1]
    pupils = f"http://{_own_address() if host in EVERYWHERE else host}:{port}/class" if for_class else None
    api = openai_routes(served_runs(runs, checkpoint))
    app = make_app(runs, [api], host=host, tours=files_of(tour), class_link=pupils, allow_origins=allow_origins)
    if tour is not None:
        view |= {"tour": tour.stem}
        for line in app.state.tours.differences(tour.stem) if all(map(steps_in, runs)) else []:
            note(f"{tour}: {line}")
    name = HOST if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    url = f"http://{name}:{port}/{'#' + urlencode(view) if view else ''}"
    print(url, flush=True)
    if pupils is not None:
        note(f"the class opens {pupils}, and can reach nothing else; its board is http://{name}:{port}/class/board")
    elif host not in ("localhost", HOST, "::1"):
        others = f"; others open http://{_own_address()}:{port}/" if host in EVERYWHERE else ""
        note(f"there is no password: whoever can reach this machine may use it{others}")
    if opens:
        webbrowser.open(url)
    run(app, listening)


def _own_address() -> str:
    """This machine's address on its outgoing route, by which others can probably reach it. Nothing is sent."""
    from socket import AF_INET, SOCK_DGRAM, gethostname, socket

    with socket(AF_INET, SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # an address that nobody has
        except OSError:
            return gethostname()
        return str(asking.getsockname()[0])


def lab(
    file: Annotated[Path, Argument(metavar="FILE", help="The page to write, as lab.html.")],
    rules: Annotated[
        Path | None,
        Argument(metavar="RULES", help="Rules of a language of your own, instead of those that are shipped."),
    ] = None,
) -> None:
    """Write a page that trains a small model in a browser."""
    _require_writable(file)
    with heavy_imports():
        from pellucid.web.lab import write_lab

    write_lab(file, rules)
    note(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _require_writable(file: Path) -> None:
    if file.is_dir() or not file.parent.is_dir():
        what = "this is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise InputOutputError(str(file), what, "name a file in a folder that is there")


def export_runs(runs: list[Path], file: Path, prompt: str | None, tour: Path | None = None) -> None:
    """Write the page as a file."""
    _require_writable(file)
    with heavy_imports():
        from pellucid.web.export import export_page

    unsupported = export_page(runs, file, prompt, tour)
    note(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB")
    if unsupported:
        note(f"{file}: no text can be typed, because model.js does not know {unsupported}; it shows the recorded one")


def _training(run_dir: Path, config_file: Path | None) -> AbstractContextManager[None]:
    """Inside, the run is trained if a config is given and there is anything left to train."""
    if config_file is None:
        return nullcontext()
    from pellucid.web.training import training, why_not_to_train

    if reason := why_not_to_train(config_for_page(config_file, run_dir), run_dir):
        note(f"{run_dir}: {reason}")
        return nullcontext()
    say_where_new(DATA_ROOT, run_dir.parent)
    run_dir.mkdir(parents=True, exist_ok=True)
    note(f"{run_dir}: not trained yet; it is now, as {config_file} says, and the page shows how")
    return training(config_file, run_dir)


def _require_run(run: Path) -> None:
    """Raise CheckpointError unless there is a run, or one is about to begin."""
    from pellucid.checkpoint.run_directory import is_locked
    from pellucid.config.run import run_meant_by

    fix = "name the folder that `pellucid train` wrote, or demo; or add --train CONFIG"
    if not run.is_dir():
        what = "no such run"
        if meant := run_meant_by(run):
            fix = f"did you mean {meant}? To train a new one, add --train CONFIG"
    elif not (run / "config.yaml").exists() and not is_locked(run):
        what = "no run here"
    else:
        return
    raise CheckpointError(str(run), what, fix)


def _view(run: Path, which: str) -> dict[str, str]:
    """The state of the page that shows this checkpoint, as its URL names it."""
    from pellucid.checkpoint.run_directory import find_step_directory, run_of

    directory = find_step_directory(run, which)
    step = int(directory.name.removeprefix("step-"))
    return {"checkpoint": f"{run_of(directory).resolve().name}@{step}"}


def config_for_page(config_file: Path, run_dir: Path) -> "RunConfig":
    """The config; of a run that has begun, with the steps it began with: `make demo` makes as many as fit."""
    from pellucid.checkpoint.run_directory import steps_in

    own = run_dir / "config.yaml"
    has_begun = steps_in(run_dir) and own.exists()
    return load_config(config_file, [f"train.steps={load_config(own, None).train.steps}"] if has_begun else None)


def train_for_page(config: Path, run_dir: Path) -> None:
    """Train for `serve --train`, in a process of its own, which saves and stops when `serve` ends."""
    run_config = config_for_page(config, run_dir)
    with heavy_imports():
        from pellucid.runs.train_run import train_run
        from pellucid.training.interrupts import stop_with_parent

    stop_with_parent()
    outcome = train_run(run_config, DATA_ROOT, run_dir, resume=True, overwrite=False, note=note)
    if outcome.stopped_by is not None:
        note(f"stopped after step {outcome.step}, saved; `serve` it again to continue")
        sys.exit(128 + outcome.stopped_by)
    note(f"validation: {outcome.best or outcome.evaluation}")
