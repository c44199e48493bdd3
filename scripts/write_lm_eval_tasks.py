"""Two tasks for lm-evaluation-harness, from the held-out fables of a run.

    python scripts/write_lm_eval_tasks.py checkpoints/fables my_tasks
    lm_eval --model hf --model_args pretrained=DIR --include_path my_tasks --tasks fables_moral

`fables_moral` gives a fable up to its moral, and all morals of the grammar to choose from: the story decides which is
right. `fables_text` is the loss over whole fables. docs/ecosystem.md says how to run both.
"""

import argparse
import json
from itertools import islice
from pathlib import Path

import yaml

from pellucid.corpora.drawn import Drawn
from pellucid.languages.fables import Fables
from pellucid.trained import load_trained_run

MORAL = "\nMoral:"


def write_tasks(corpus: Drawn, folder: Path, n: int) -> None:
    """The first `n` held-out fables as two YAML files, each with its questions beside it."""
    fables = list(islice(corpus.documents("validation"), n))
    assert isinstance(corpus.language, Fables)
    morals = sorted(corpus.language.moral_probabilities)
    stories = [fable.split(f"{MORAL} ") for fable in fables]
    questions = [{"story": story + MORAL, "morals": morals, "right": morals.index(moral)} for story, moral in stories]
    folder.mkdir(parents=True, exist_ok=True)
    moral = {
        "output_type": "multiple_choice",
        "doc_to_text": "{{story}}",
        "doc_to_choice": "{{morals}}",
        "doc_to_target": "{{right}}",
        "metric_list": [{"metric": "acc"}],
    }
    text = {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    }
    for name, task, rows in (
        ("fables_moral", moral, questions),
        ("fables_text", text, [{"text": fable} for fable in fables]),
    ):
        file = folder.resolve() / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **data, **task}), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run that was trained on fables")
    parser.add_argument("folder", type=Path, help="where to write the tasks")
    parser.add_argument("--fables", type=int, default=200, metavar="N", help="held-out fables to ask about")
    arguments = parser.parse_args()
    corpus = load_trained_run(arguments.run, "best")[0].corpus()
    if not isinstance(corpus, Drawn) or not isinstance(corpus.language, Fables):
        parser.error(f"{arguments.run} was not trained on fables")
    write_tasks(corpus, arguments.folder, arguments.fables)


if __name__ == "__main__":
    main()
