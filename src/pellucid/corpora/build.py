"""From the `corpus` section of a config to the corpus."""

from pathlib import Path

from typing_extensions import assert_never

from pellucid.config.data import CorpusConfig, FablesConfig, HuggingFaceConfig, TextFilesConfig
from pellucid.corpora.corpus import Corpus

DOWNLOADS = Path("data", "downloads")


def build_corpus(config: CorpusConfig, downloads: Path = DOWNLOADS) -> Corpus:
    """The corpus that the config describes; a file of the web is fetched into `downloads`. DataError: not readable.

    Each corpus is imported only where it is needed: `datasets` alone takes a second.
    """
    match config:
        case FablesConfig():
            from pellucid.corpora.fables import FablesCorpus

            return FablesCorpus(
                size=config.size,
                world_size=config.world_size,
                seed=config.seed,
                validation_fraction=config.validation_fraction,
            )
        case TextFilesConfig():
            from pellucid.corpora.text_files import TextFilesCorpus

            return TextFilesCorpus(
                config.files or [str(_downloaded(config, downloads))],
                separator=config.separator,
                validation_files=config.validation_files,
                validation_fraction=config.validation_fraction,
            )
        case HuggingFaceConfig():
            from pellucid.corpora.hugging_face import HuggingFaceCorpus

            return HuggingFaceCorpus(
                config.path,
                name=config.name,
                split=config.split,
                validation_split=config.validation_split,
                validation_fraction=config.validation_fraction,
                text_field=config.text_field,
                data_files=config.data_files,
                streaming=config.streaming,
            )
        case _:
            assert_never(config)


def _downloaded(config: TextFilesConfig, folder: Path) -> Path:
    from pellucid.corpora.download import download

    assert config.download is not None, "the config demands files or download"
    return download(config.download.url, config.download.sha256, folder)
