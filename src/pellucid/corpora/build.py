"""Builds the corpus that the `corpus` section of a config describes."""

from pathlib import Path

from pellucid.config.data import (
    FORMAT_OF_SUFFIX,
    ConversationsConfig,
    CorpusConfig,
    HuggingFaceConfig,
    NoCorpusConfig,
    PreferencesConfig,
    TextFilesConfig,
)
from pellucid.config.languages import InstructionsConfig, SumsConfig
from pellucid.corpora.corpus import Corpus
from pellucid.errors import DataError, Fix, Option

DOWNLOADS = Path("data", "downloads")


def build_corpus(config: CorpusConfig, downloads: Path = DOWNLOADS) -> Corpus:
    """The corpus that the config describes. A file from the web is fetched into `downloads`. DataError: unreadable.

    Each kind is imported only when it is needed, as `datasets` alone takes a second.
    """
    options = config.model_dump(mode="json", exclude={"type"})
    match config:
        case InstructionsConfig():
            from pellucid.corpora.instructions import InstructionsCorpus

            return InstructionsCorpus(**options)
        case TextFilesConfig():
            from pellucid.corpora.download import download
            from pellucid.corpora.text_files import TextFilesCorpus

            if (web := options.pop("download")) and not config.files:
                options["files"] = [str(download(web["url"], web["sha256"], downloads))]
            return TextFilesCorpus(**options)
        case HuggingFaceConfig():
            from pellucid.corpora.hugging_face import HuggingFaceCorpus

            return HuggingFaceCorpus(**options)
        case ConversationsConfig():
            from pellucid.corpora.conversations import ConversationsCorpus

            files, held_out = options.pop("files"), options.pop("validation_files")
            if files:
                options["path"] = FORMAT_OF_SUFFIX[Path(files[0]).suffix]
                options["data_files"] = {"train": files, **({"validation": held_out} if held_out else {})}
                options["validation_split"] = "validation" if held_out else None
            return ConversationsCorpus(**options)
        case PreferencesConfig():
            from pellucid.corpora.preferences import preferences

            return preferences(**options)
        case NoCorpusConfig():
            words = "name some: {} to evaluate or embed, {} to explain; to train, write a config with"
            text, prompt = Option("--text", "text_file or texts"), Option("--prompt", "text")
            fix = Fix(f"{words} start_from: RUN and a corpus", text, prompt)
            raise DataError("corpus", "this run has no text of its own", fix)
        case _:  # what is left are languages, as the type of `build_language` demands
            from pellucid.languages.build import build_language

            language, drawn = build_language(config), (config.size, config.seed, config.validation_fraction)
            if isinstance(config, SumsConfig):
                from pellucid.corpora.sums import DrawnSums

                return DrawnSums(language, *drawn)
            from pellucid.corpora.drawn import Drawn

            return Drawn(language, *drawn)
