"""Builds the corpus that the `corpus` section of a config describes."""

from pathlib import Path
from typing import Any

from typing_extensions import assert_never

from pellucid.config import data, languages
from pellucid.corpora.corpus import Corpus
from pellucid.corpora.drawn import Drawn
from pellucid.errors import DataError, Fix, Option
from pellucid.languages.language import Language

DOWNLOADS = Path("data", "downloads")
# Part of the identity: raise it whenever a document of a language of symbols or its probability changes.
SYMBOLS_VERSION = 1


def build_corpus(config: data.CorpusConfig, downloads: Path = DOWNLOADS) -> Corpus:
    """The corpus that the config describes. A file from the web is fetched into `downloads`. DataError: unreadable.

    Each kind is imported only when it is needed, as `datasets` alone takes a second.
    """
    options = config.model_dump(mode="json", exclude={"type"})
    match config:
        case languages.InstructionsConfig():
            from pellucid.corpora.instructions import InstructionsCorpus

            return InstructionsCorpus(**options)
        case data.TextFilesConfig():
            from pellucid.corpora.download import download
            from pellucid.corpora.text_files import TextFilesCorpus

            if (web := options.pop("download")) and not config.files:
                options["files"] = [str(download(web["url"], web["sha256"], downloads))]
            return TextFilesCorpus(**options)
        case data.HuggingFaceConfig():
            from pellucid.corpora.hugging_face import HuggingFaceCorpus

            return HuggingFaceCorpus(**options)
        case data.ConversationsConfig():
            from pellucid.corpora.conversations import ConversationsCorpus

            return ConversationsCorpus(**_of_data_set(options))
        case data.TokensConfig():
            from pellucid.corpora.tokens import TokensCorpus

            return TokensCorpus(**_of_data_set(options))
        case data.PreferencesConfig():
            from pellucid.corpora.preferences import preferences

            return preferences(**options)
        case data.NoCorpusConfig():
            words = "name some: {} to evaluate or embed, {} to explain; to train, write a config with"
            text, prompt = Option("--text", "text_file or texts"), Option("--prompt", "text")
            fix = Fix(f"{words} start_from: RUN and a corpus", text, prompt)
            raise DataError("corpus", "this run has no text of its own", fix)
        case languages.SumsConfig():
            from pellucid.corpora.sums import DrawnSums

            return DrawnSums(build_language(config), config.size, config.seed, config.validation_fraction)
        case _:  # the other languages
            return Drawn(build_language(config), config.size, config.seed, config.validation_fraction)


def _of_data_set(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a DataSet, which has local files, if there are any, as the data files of their format."""
    files, held_out = options.pop("files"), options.pop("validation_files")
    if files:
        options["path"] = data.FORMAT_OF_SUFFIX[Path(files[0]).suffix]
        options["data_files"] = {"train": files, **({"validation": held_out} if held_out else {})}
        options["validation_split"] = "validation" if held_out else None
    return options


def build_language(config: languages.LanguageConfig) -> Language:
    """The language that the config describes. Each is imported only when it is needed.

    Raises ConfigError for one that is impossible, DataError for a file of rules with a mistake.
    """
    match config:
        case languages.FablesConfig():
            from pellucid.languages.fables import Fables

            return Fables(config.world_size)
        case languages.GrammarConfig():
            from pellucid.languages.grammar.own import OwnGrammar, read_source

            return OwnGrammar(read_source(Path(config.file)), config.file)
        case _:
            language = _language_of_symbols(config)
            # As before there were any thoughts.
            without = {"thoughts"} if getattr(config, "thoughts", "none") == "none" else set()
            settings = config.model_dump(mode="json", exclude={"type", *languages.DrawnSection.model_fields, *without})
            language.identity = {"type": config.type, "symbols_version": SYMBOLS_VERSION, **settings}
            return language


def _language_of_symbols(config: languages.LanguageOfSymbolsConfig) -> Language:
    match config:
        case languages.ChainsConfig():
            from pellucid.languages.chains import Chains

            return Chains(config.states, config.alpha, config.length)
        case languages.LookupConfig():
            from pellucid.languages.lookup import Lookup

            return Lookup(config.keys, config.values, config.pairs, config.queries, config.fewest_pairs)
        case languages.HopsConfig():
            from pellucid.languages.hops import Hops

            return Hops(config.names, config.most_hops, config.queries, config.thoughts)
        case languages.BracketsConfig():
            from pellucid.languages.brackets import Brackets

            return Brackets(config.kinds, config.depth, config.length)
        case languages.SumsConfig():
            from pellucid.languages.sums import Sums

            return Sums(config.digits, config.order, config.modulus, config.thoughts)
        case languages.HiddenConfig():
            from pellucid.languages.hidden import GOLDEN_MEAN, Hidden, mess3, random_process

            match config.process:
                case "mess3":
                    transitions = mess3(config.move, config.own)
                case "golden_mean":
                    transitions = GOLDEN_MEAN
                case "random":
                    transitions = random_process(config.states, config.symbols, config.process_seed)
            return Hidden(transitions, config.length)
        case languages.TreesConfig():
            from pellucid.languages.trees import Trees, random_grammar

            grammar = random_grammar(config.levels, config.width, config.symbols, config.rules, config.grammar_seed)
            return Trees(grammar)
        case _:
            assert_never(config)
