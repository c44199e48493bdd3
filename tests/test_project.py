"""What surrounds the code: one version, a licence, a citation that tools can read, docstrings that say something."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import yaml

from pellucid import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_and_the_changelog_have_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    releases = re.findall(r"^## \[(\d.*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert citation["version"] == __version__
    assert releases[0] == __version__


def test_the_citation_has_what_its_format_demands():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] == [{"name": "The Pellucid authors"}]


def test_the_licence_is_mit_by_the_authors_of_the_citation():
    licence = (ROOT / "LICENSE").read_text("utf-8")
    assert licence.startswith("MIT License\n\nCopyright (c) 2026 The Pellucid authors\n")
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["license"] == "MIT"


def test_no_docstring_begins_in_the_middle_of_a_sentence():
    """A reader who lands on a function has not read the one above: "The same, but …" tells them nothing."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, documented):
                first_words = (ast.get_docstring(node) or "").split(".")[0]
                assert not re.match(r"(Of|Those|That|The same|What|Whatever|Whoever)\b", first_words), (
                    f"{file}: {first_words}"
                )


# Who may build a corpus from a config alone: it is about to be trained on, or is one to compare with.
BUILDERS = {
    "data/prepared.py": {"what_decides_tokens"},
    "data/both_sides.py": {"truth_from_both_sides"},
    "web/lab.py": {"language_of"},  # it compares it with what the tokens were made of
    "recipe.py": {"build_task", "build_session"},
    "trained.py": {"corpus"},
    "runs/evaluate_run.py": {"_fingerprint_now"},
    "runs/cost_of_run.py": {"vocab_size_of"},
    "experiments/measures.py": {"require_texts", "other_texts"},
}


def test_a_trained_run_is_only_judged_by_the_corpus_it_was_trained_on():
    """Rules and texts are files that people edit; `TrainedModel.corpus` compares them with those of the training."""
    for file in sorted((ROOT / "src/pellucid").rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef) and "build_corpus" in names_in(function):
                assert function.name in BUILDERS.get(file.relative_to(ROOT / "src/pellucid").as_posix(), ()), file
    for folder in ("scripts", "lessons"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            assert not re.search(r"build_corpus\((\w+\.)+config\.corpus", file.read_text("utf-8")), f"{file}: .corpus()"


def names_in(function: ast.FunctionDef) -> set[str]:
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}


def test_what_the_code_imports_is_installed_with_it_or_named_as_an_extra():
    """Else a newcomer meets, after `pip install .`, a command that lacks a package."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    needed = {name.replace("-", "_") for name in dependencies()}
    extras = {"gguf", "lab", "notebook", "schemas", "tensorboard", "wandb"}
    assert all(f"\n{name} = [" in text for name in extras)
    brought = {
        "jupytext": "notebook",
        "llguidance": "schemas",
        "pandas": "lab",
        "pyarrow": "datasets",
        "pydantic_core": "pydantic",
        "starlette": "fastapi",
        "yaml": "pyyaml",
    }
    imported = defaultdict(set)  # in which rooms
    for file in (ROOT / "src/pellucid").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                imported[name.partition(".")[0]].add(file.relative_to(ROOT / "src/pellucid").parts[0])
    foreign = imported.keys() - sys.stdlib_module_names - {"pellucid"}
    assert {brought.get(name, name) for name in foreign} <= needed | extras
    assert imported["pandas"] == {"experiments"}
    assert "scipy" not in imported, "only the code of one experiment needs it"


def dependencies() -> set[str]:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return set(re.findall(r'^    "([\w-]+)>=', text.partition("dependencies = [")[2].partition("\n]")[0], re.MULTILINE))


def test_a_corpus_is_prepared_with_the_packages_that_make_installs_first(tmp_path):
    """`make demo` writes its fables while the others are installed."""
    first = re.findall(r"^TO_PREPARE := (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)[0].split()
    assert set(first) < dependencies()
    later = [name.replace("-", "_") for name in dependencies() - set(first)]
    command = ["pellucid", "prepare", "fables", "corpus.size=50", "tokenizer.vocab_size=300"]
    script = (
        f"import sys; sys.modules |= dict.fromkeys({later}); sys.argv = {command}; import pellucid.cli as c; c.main()"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_what_tests_the_core_needs_no_room_around_it():
    """`make test-core` runs these tests in a copy without those rooms."""
    made = (ROOT / "Makefile").read_text("utf-8")
    fast, core, around = (
        re.findall(rf"^{name} := (.+)$", made, re.MULTILINE)[0].split() for name in ("FAST", "CORE", "AROUND")
    )
    imports = re.compile(
        rf"^\s*(?:from|import) pellucid\.({'|'.join(room.removesuffix('.py') for room in around)})\b", re.M
    )
    for room in {*fast, *core} - {"$(FAST)"}:
        for file in (ROOT / "tests" / room).rglob("*.py"):
            assert not imports.search(file.read_text("utf-8")), f"{file.name} would not be in the core"
