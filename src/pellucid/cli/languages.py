"""The command of languages: language."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pellucid.cli.arguments import Json
from pellucid.cli.terminal import print_result

N_OF_CONTEST = 100  # new documents; with more, a language has to be larger


def language(
    file: Annotated[Path, Argument(metavar="FILE", help="Your rules; or `weather`, the example.")],
    as_json: Json = False,
) -> None:
    """Check a grammar of your own, and describe its texts."""
    from pellucid.config.languages import GrammarConfig
    from pellucid.config.load import load_run_config
    from pellucid.corpora.drawn import Drawn
    from pellucid.languages.grammar.own import OwnGrammar, read_source
    from pellucid.languages.grammar.portrait import portrait
    from pellucid.tables import folded

    drawn = load_run_config(Path("languages/weather")).corpus  # what `train` would take
    assert isinstance(drawn, GrammarConfig)
    grammar = OwnGrammar(read_source(file), str(file))
    corpus = Drawn(grammar, drawn.size, drawn.seed, drawn.validation_fraction)
    picture, too_small = portrait(grammar), corpus.too_small(N_OF_CONTEST)
    if as_json:
        n_texts = picture.n_texts if picture.n_texts < 10**4_000 else None  # JSON readers refuse longer numbers
        more = {"n_texts": n_texts, "command": picture.command(str(file)), "too_small": too_small}
        print_result({**picture._asdict(), **more})
        return
    notes = [folded(f"too small {purpose}: {reason}") for purpose, reason in too_small.items()]
    if "to train on" not in too_small:
        notes.append(f"to train on it:\n    {picture.command(str(file))}")
    print_result("\n".join([picture.table(str(file)), *notes]))
