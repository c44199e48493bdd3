"""Draws the figures of the pages again.

    python scripts/draw.py --list                       what there is: which figures, their time and what they need
    python scripts/draw.py equations                    one of them; with --help its options

A drawing is a module of scripts/drawings with a function `draw`, which writes files and returns their paths.
"""

import sys

from registry import called, chosen, parser_for, print_list


def main(arguments: list[str]) -> None:
    if arguments == ["--list"]:
        print_list("drawings", "draw")
        return
    name, draw = chosen("drawings", "draw", arguments, __doc__)
    for file in called(draw, vars(parser_for(draw, name).parse_intermixed_args(arguments[1:]))):
        print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
