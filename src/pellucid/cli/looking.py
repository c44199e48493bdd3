"""Commands that look into a trained model: evaluate, contest, explain, heads, tokenize, verify."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pellucid.cli.arguments import DATA_ROOT, Json, Run, Which, read_prompt, read_run
from pellucid.cli.terminal import heavy_imports, note, print_result, say_where_new
from pellucid.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from pellucid.objectives.task import Validation


def evaluate(
    run: Run,
    text: Annotated[Path | None, Option(metavar="FILE", help="Evaluate on this text file instead.")] = None,
    on: Annotated[Path | None, Option(metavar="RUN|CONFIG", help="Evaluate on the validation text of this.")] = None,
    answers: Annotated[
        int | None, Option(metavar="N", min=0, help="Instructions, or questions of hops and sums. [default: 200]")
    ] = None,
    samples: Annotated[
        int | None, Option(metavar="N", min=1, help="For hops and sums: answers to each question. [default: 8]")
    ] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Evaluate a trained model on its validation text. Loss, perplexity, bits per byte; floor and excess if known."""
    if sum(option is not None for option in (text, on, samples if answers is None else answers)) > 1:
        what = "--text, --on and --answers (with --samples) exclude each other"
        raise ConfigError("command line", what, "give one of them")
    with heavy_imports():
        from pellucid.checkpoint.run_directory import find_step_directory
        from pellucid.runs.evaluate_run import evaluate_on, evaluate_run, evaluate_text
        from pellucid.trained import load_trained_run

    trained, precision = load_trained_run(run, checkpoint)
    if text is not None:
        evaluation: Validation = evaluate_text(trained, precision, text)
    else:
        say_where_new(DATA_ROOT)
        if on is not None:
            evaluation = evaluate_on(trained, precision, on, DATA_ROOT)
        else:
            if not any(DATA_ROOT.glob(f"*-{trained.data_fingerprint}")):
                note("preparing the text that this run was trained on, once; the demo's takes about a minute")
            directory = find_step_directory(run, checkpoint)
            evaluation = evaluate_run(trained, precision, DATA_ROOT, directory, str(run), answers, samples)
    print_result({"step": trained.step, **evaluation.to_json()} if as_json else evaluation.table())


def contest(
    run: Run,
    fresh: Annotated[
        int, Option(metavar="N", min=2, max=100_000, help="Number of new documents to draw, at most 100,000.")
    ] = 5000,
    seed: Annotated[
        int | None, Option(metavar="S", min=0, help="Draw those of this seed. [default: that of the weights]")
    ] = None,
    against: Annotated[
        Path | None, Option(metavar="RUN", parser=read_run, help="Compare with another run, on the same documents.")
    ] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Score a run on documents that nobody has seen. Excess over the exact floor, and what training took."""
    with heavy_imports():
        from pellucid.runs.contest import contest_runs
        from pellucid.tables import folded

    runs = [run] if against is None else [run, against]
    score, *others = contest_runs(runs, checkpoint, n=fresh, seed=seed)
    outcome = score.against(others[0]) if others else None
    if as_json:
        print_result({**score.to_json(), "outcome": outcome})
    else:
        tables = [each.table() for each in (score, *others)]
        print_result("\n\n".join([*tables, *map(folded, [outcome] if outcome else [])]))


def explain(
    run: Run,
    prompt: Annotated[str | None, Option(metavar="TEXT", help="Text to explain, and what may come next.")] = None,
    prompt_file: Annotated[Path | None, Option(metavar="F", help="File that holds the text; - is stdin.")] = None,
    fable: Annotated[int | None, Option(metavar="N", min=1, help="The Nth held-out document. [default: 1]")] = None,
    top: Annotated[int, Option(metavar="N", min=1, help="How many next tokens to list at each place.")] = 10,
    attention: Annotated[str | None, Option(metavar="all|LAYER.HEAD", help="Where all heads, or one, look.")] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Write the Microscope of this text into one file instead.")
    ] = None,
) -> None:
    """Show what a model expects at each token of a text. The exact truth stands beside it where it is known."""
    text = read_prompt(prompt, prompt_file)
    if text is not None and fable is not None:
        raise ConfigError("command line", "--fable and a prompt exclude each other", "give one of them")
    with heavy_imports():
        from pellucid.checkpoint.run_directory import find_step_directory
        from pellucid.inspection.build import explain_run
        from pellucid.trained import load_trained_run

    trained, _ = load_trained_run(run, checkpoint)
    explanation = explain_run(trained, text, number=fable or 1, n_candidates=top, attention=attention)
    if html is not None:
        from pellucid.cli.serving import export_runs

        export_runs([find_step_directory(run, checkpoint)], html, explanation.text)
    if as_json:
        print_result({"run": trained.config.name, "step": trained.step, **explanation.to_json()})
    elif html is None:
        print_result(explanation.table())


def heads(
    run: Run,
    fables: Annotated[int, Option(metavar="N", min=2, help="Number of held-out documents to measure on.")] = 64,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Show what each head looks at, and which skill it serves."""
    with heavy_imports():
        from pellucid.inspection.build import heads_of_run
        from pellucid.trained import load_trained_run

    trained, _ = load_trained_run(run, checkpoint)
    found = heads_of_run(trained, n_documents=fables)
    about = {"run": trained.config.name, "step": trained.step}
    print_result({**about, **found.to_json()} if as_json else found.table())


def tokenize(
    text: Annotated[str, Argument(metavar="TEXT", help="Text to split into tokens.")],
    run: Annotated[
        Path | None, Option(metavar="RUN", parser=read_run, help="Use the tokenizer of this run; or of demo.")
    ] = None,
    learn_from: Annotated[Path | None, Option(metavar="FILE", help="Learn from this file. [default: TEXT]")] = None,
    vocab_size: Annotated[int | None, Option(metavar="N", min=257, help="At most N tokens. [default: 512]")] = None,
    as_json: Json = False,
) -> None:
    """Show the tokens of a text. With their ids, bytes, and the merges that made them."""
    with heavy_imports():
        from pellucid.checkpoint.run_directory import find_step_directory
        from pellucid.config.data import BytePairConfig
        from pellucid.corpora.corpus import cut_into_pieces
        from pellucid.tokenizer import Tokenizer, pieces
        from pellucid.tokenizer.build import train_tokenizer

    if run is not None:
        if learn_from is not None or vocab_size is not None:
            what = "--run excludes --learn-from and --vocab-size"
            raise ConfigError("command line", what, "leave out --run, or the others")
        tokenizer = Tokenizer.load(find_step_directory(run, "latest") / "tokenizer.json")
    else:
        if learn_from is None and os.path.isfile(text):
            note(f"these are the tokens of its name; to learn tokens from the file: --learn-from {text}")
        source = text if learn_from is None else read_prompt(None, learn_from) or ""
        config = BytePairConfig(type="bpe", vocab_size=vocab_size or 512)
        tokenizer = train_tokenizer(config, (piece.text for piece in cut_into_pieces([source])), [])
    print_result(pieces.to_json(tokenizer, text) if as_json else pieces.table(tokenizer, text))


def verify(run: Run) -> None:
    """Check the checkpoints, snapshots and logs of a run. Hashes, shapes, numbers; exits with 4 if any is bad."""
    with heavy_imports():
        from pellucid.checkpoint import run_directory
        from pellucid.checkpoint.step_directory import USE_ANOTHER
        from pellucid.tables import table
        from pellucid.trained import verify as verify_checkpoint

    directories = run_directory.step_directories(run) or [run_directory.find_step_directory(run, "latest")]
    intact, newest, fixes = [], None, []
    for directory in directories:
        try:
            state = verify_checkpoint(directory)
            newest = state if directory.parent == run else newest
            print(table((), [(f"{directory}: intact",)]), flush=True)
            intact.append(directory)
        except CheckpointError as error:
            print(table((), [(f"{directory}: {error.what}",)], {0: "bold"}), flush=True)
            fixes.append(error.fix)
    if intact == directories:
        if newest is not None:
            run_directory.require_logs(run, newest)
        return
    if directories == [run]:
        fix = f"`pellucid verify {run_directory.run_of(run)}` shows the others"
    elif any(directory.parent == run for directory in intact):
        fix = "`pellucid train --resume` continues from the newest intact one"
    else:
        others = [fix for fix in fixes if fix != USE_ANOTHER]  # what is missing may be brought back
        fix = run_directory.use_snapshot(intact[-1]) if intact else str((*others, run_directory.get_again(run))[0])
    what = f"{len(directories) - len(intact)} of {len(directories)} checkpoints cannot be used"
    raise CheckpointError(str(run), what, fix)
