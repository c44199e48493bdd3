"""A grammar as its notation says it: every way to draw, one after the other, with exact fractions."""

from fractions import Fraction

from pellucid.languages.grammar.notation import Choice, Hole, capitalize, fixed_texts, read_options, read_written


def all_texts(source: str) -> dict[str, Fraction]:
    """Every text with its probability: the sum over all ways to write it."""
    written = read_written(source)
    rules = {rule.name: read_options(rule) for rule in written if not rule.fixed}
    texts: dict[str, Fraction] = {}

    def fill(hole, state):
        text = state[hole.variable][hole.attribute]
        return capitalize(text) if hole.capital else text

    def go_on(text, ahead, state, p):
        if not ahead:
            texts[text] = texts.get(text, 0) + p
            return
        part, *rest = ahead
        if isinstance(part, str):
            go_on(text + part, rest, state, p)
        elif isinstance(part, Hole):
            go_on(text + fill(part, state), rest, state, p)
        else:
            draw(text, part, rest, state, p)

    def draw(text, choice, rest, state, p):
        name = choice.rule + (fill(choice.selector, state) if choice.selector else "")
        table, _, row = name.partition("=")
        has_capital = name not in rules
        options = rules[table if row else name if not has_capital else name[:1].lower() + name[1:]]
        if row:
            options = [option for option in options if option.parts[0] == row]
        if choice.without:
            forbidden = fill(choice.without, state)
            options = [option for option in options if option.attributes[choice.without.attribute] != forbidden]
        total = sum(Fraction(option.weight) for option in options)
        for option in options:
            memory = {choice.variable: {**state.get(choice.variable, {}), **option.attributes}}
            parts = [] if row else capitalized(option.parts) if has_capital else option.parts
            go_on(text, [*parts, *rest], {**state, **memory}, p * Fraction(option.weight) / total)

    def capitalized(parts):
        first, *rest = parts
        if isinstance(first, str):
            return [capitalize(first), *rest]
        if isinstance(first, Hole):
            return [Hole(first.variable, first.attribute, capital=True), *rest]
        return [Choice(capitalize(first.rule), first.selector, first.variable, first.without), *rest]

    go_on("", [Choice(next(iter(rules)))], fixed_texts(written), Fraction(1))
    return texts
