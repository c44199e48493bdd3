"""The command of languages: language."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pellucid.cli.arguments import Json
from pellucid.cli.terminal import print_result


def language(
    file: Annotated[Path, Argument(metavar="FILE", help="Your rules, as in configs/languages/weather.rules.")],
    as_json: Json = False,
) -> None:
    """Check a grammar of your own, and describe its texts."""
    from pellucid.languages.grammar.own import OwnGrammar
    from pellucid.languages.grammar.portrait import portrait

    picture = portrait(OwnGrammar.read_file(file))
    print_result(picture._asdict() if as_json else picture.table(str(file)))
