"""Builds the language that the `corpus` section of a config describes."""

from pathlib import Path

from typing_extensions import assert_never

from pellucid.config.languages import (
    BracketsConfig,
    ChainsConfig,
    DrawnSection,
    FablesConfig,
    GrammarConfig,
    HiddenConfig,
    HopsConfig,
    LanguageConfig,
    LanguageOfSymbolsConfig,
    LookupConfig,
    SumsConfig,
    TreesConfig,
)
from pellucid.languages.language import Language

# Part of the identity: raise it whenever a document of a language of symbols or its probability changes.
SYMBOLS_VERSION = 1


def build_language(config: LanguageConfig) -> Language:
    """The language that the config describes. Each is imported only when it is needed.

    Raises ConfigError for one that is impossible, DataError for a file of rules with a mistake.
    """
    match config:
        case FablesConfig():
            from pellucid.languages.fables import Fables

            return Fables(config.world_size)
        case GrammarConfig():
            from pellucid.languages.grammar.own import OwnGrammar, read_source

            return OwnGrammar(read_source(Path(config.file)), config.file)
        case _:
            language = _language_of_symbols(config)
            settings = config.model_dump(mode="json", exclude={"type", *DrawnSection.model_fields})
            language.identity = {"type": config.type, "symbols_version": SYMBOLS_VERSION, **settings}
            return language


def _language_of_symbols(config: LanguageOfSymbolsConfig) -> Language:
    match config:
        case ChainsConfig():
            from pellucid.languages.chains import Chains

            return Chains(config.states, config.alpha, config.length)
        case LookupConfig():
            from pellucid.languages.lookup import Lookup

            return Lookup(config.keys, config.values, config.pairs, config.queries, config.fewest_pairs)
        case HopsConfig():
            from pellucid.languages.hops import Hops

            return Hops(config.names, config.most_hops, config.queries)
        case BracketsConfig():
            from pellucid.languages.brackets import Brackets

            return Brackets(config.kinds, config.depth, config.length)
        case SumsConfig():
            from pellucid.languages.sums import Sums

            return Sums(config.digits, config.order, config.modulus)
        case HiddenConfig():
            from pellucid.languages.hidden import GOLDEN_MEAN, Hidden, mess3, random_process

            match config.process:
                case "mess3":
                    transitions = mess3(config.move, config.own)
                case "golden_mean":
                    transitions = GOLDEN_MEAN
                case "random":
                    transitions = random_process(config.states, config.symbols, config.process_seed)
            return Hidden(transitions, config.length)
        case TreesConfig():
            from pellucid.languages.trees import Trees, random_grammar

            grammar = random_grammar(config.levels, config.width, config.symbols, config.rules, config.grammar_seed)
            return Trees(grammar)
        case _:
            assert_never(config)
