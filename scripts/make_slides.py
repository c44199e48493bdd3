"""Make slides of the lessons: `python scripts/make_slides.py` all of them, with numbers those of some lessons.

A page is to be read, a slide to be talked about. Of a page, its slides show only

- its title and first paragraph; of each section the heading and the first sentence;
- each sentence with a **bold** term, and a paragraph's last one if it ends in a colon or a formula follows;
- each question, a phrase of five words or more in *italics*, with what stands before it in its paragraph;
- figures, formulas, tables and lists; code of up to 12 lines, and what it prints;
- each exercise with its minutes and the first paragraph of its task.

What code prints, and the answer or the figure after a question, come with the next key: the class predicts first.
Hints and solutions are never shown. Pandoc makes a single file of each deck, which opens without a network.
"""

import argparse
import re
from math import ceil
from pathlib import Path

import pypandoc

from pellucid.course.exercises import LESSONS, Lesson, all_lessons

FORMAT = "commonmark+attributes+pipe_tables+tex_math_dollars"
SPACE_GOES_ON = "<script>addEventListener('load', () => (Dz.toggleContent = Dz.forward))</script>"
OPTIONS = [
    *("--standalone", "--embed-resources", "--mathml", "--slide-level=1", "--fail-if-warnings", "--metadata=lang:en"),
    *(f"--css={Path(__file__).with_suffix('.css')}", f"--resource-path={LESSONS}"),
    f"--variable=header-includes:{SPACE_GOES_ON}",
]
ROOM = 590  # pixels below the heading of a slide, which has 1280 by 720
LONGEST_CODE = 12  # lines

HINTS = r"<details><summary>Hint</summary>.*?</details>"
BLOCK = re.compile(
    rf"^### Exercise.*?{HINTS}(?:\n\n{HINTS})*|^<details>.*?</details>"
    r"|^```.*?^```$|^\$\$\n.*?^\$\$$|^[^\n]+(?:\n[^\n]+)*",
    re.DOTALL | re.MULTILINE,
)
NOT_SHOWN = re.compile(r"<!-- result [^<>]+ -->|^<(?:!--|div).*\n+", re.MULTILINE)
ANSWER = re.compile(r"<details><summary>(.*?)</summary>\n\n(.*)</details>", re.DOTALL)
LAID_OUT = re.compile(r"!\[|\$\$|\||[-*] |\d\. | {4}")
LINK = re.compile(r"`[^`]*`|(?<!!)\[([^\]]+)\]\([^)\s]+\)")
SENTENCE_END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\*)|(?<=[.?!]\*\*))(?<!et al\.)\s+(?=[A-Z0-9*$`“\"(\[])")
EMPHASIS = re.compile(r"\*\*.+?\*\*|`[^`]+`|\$[^$]+\$|\*([^*]+)\*", re.DOTALL)


class Deck:
    """Slides as Markdown, each with a first-level heading; the last one is being filled."""

    def __init__(self) -> None:
        self.markdown, self.heading, self.room, self.holds_only_text = "", "", 0, True

    def add(self, heading: str, block: str, hide: bool = False, is_question: bool = False, before: str = "") -> None:
        """Puts a block on the last slide, or on a new one if it (and what it leads to) needs more room."""
        is_code = block.startswith("```")
        block = sized(block) if is_code else LINK.sub(lambda link: link[1] or link[0], block)
        is_full = height(block) + height(before) > self.room
        if heading != self.heading or is_full or (is_question and not self.holds_only_text):
            style = " {.exercise}" if heading.startswith("Exercise") else ""
            self.markdown += f"# {heading}{style}\n\n"
            self.heading, self.room, self.holds_only_text, hide = heading, ROOM, True, False
        self.markdown += f'<div class="incremental">\n\n{block}\n\n</div>\n\n' if hide else f"{block}\n\n"
        self.room -= height(block)
        self.holds_only_text = self.holds_only_text and not (is_question or is_code or LAID_OUT.match(block))


def slides(page: str) -> str:
    """The slides of a lesson's page, in Pandoc's Markdown."""
    title, about, *blocks = BLOCK.findall(NOT_SHOWN.sub("", page))
    deck, section, is_first, was_question, is_code_shown = Deck(), "", False, False, False
    deck.add(title.lstrip("# "), about)
    for block, after in zip(blocks, [*blocks[1:], ""], strict=True):
        if block.startswith("### Exercise"):
            heading, facts, task = block.split("\n\n")[:3]
            was_question = False
            deck.add(heading.lstrip("# "), f"{facts}\n\n{task}")
        elif block.startswith("#"):
            section, is_first = block.lstrip("# "), True
        elif block.startswith("<details>"):
            summary, answer = ANSWER.fullmatch(block).groups()
            if summary.endswith("?"):
                deck.add(section, f"*{summary}*", is_question=True)
            if summary.endswith(("?", "Answer")):
                deck.add(section, beginning(answer), hide=True)
        elif section and block.startswith("```text"):
            if is_code_shown or was_question:
                deck.add(section, block, hide=True)
        elif section and block.startswith("```"):
            is_code_shown = block.count("\n") <= LONGEST_CODE + 1
            if is_code_shown:
                deck.add(section, block)
        elif section and LAID_OUT.match(block):
            deck.add(section, block, hide=was_question and block.startswith("!["))
        elif section:
            is_lead = after.startswith("$$") or (block.endswith(":") and not after.startswith("#"))
            said, was_question = worth_showing(block, is_first, is_lead)
            if said:
                deck.add(section, said, is_question=was_question, before=after if is_lead else "")
            is_first = False
    return deck.markdown


def worth_showing(paragraph: str, is_first: bool, is_lead: bool) -> tuple[str, bool]:
    """The part of a paragraph that a slide shows, and whether it asks something."""
    phrases = [each for each in EMPHASIS.finditer(paragraph) if len((each[1] or "").split()) >= 5]
    if phrases:
        end = SENTENCE_END.search(paragraph, phrases[-1].end())
        return paragraph[: end.start() if end else None], any("?" in each[1] for each in phrases)
    sentences = SENTENCE_END.split(paragraph)
    keep = {i for i, sentence in enumerate(sentences) if "**" in sentence}
    keep |= {i + 1 for i in keep if sentences[i].endswith(".**")}  # a bold title says nothing alone
    keep |= {0} if is_first else set()
    keep |= {len(sentences) - 1} if is_lead else set()
    return " ".join(sentence for i, sentence in enumerate(sentences) if i in keep), False


def beginning(answer: str) -> str:
    """An answer, or its first sentences if it is long."""
    blocks = BLOCK.findall(answer)
    if sum(map(height, blocks)) < ROOM / 2:
        return "\n\n".join(blocks)
    sentences = SENTENCE_END.split(blocks[0])
    n_chars = [sum(map(len, sentences[:n])) for n in range(1, len(sentences) + 1)]
    return " ".join(sentences[: max(1, sum(n < 300 for n in n_chars))])


def sized(code: str) -> str:
    """A block of code in letters as large as its longest line allows: 18 pixels at least, or it is wrapped."""
    size = max(18, min(22, int(1890 / max(map(len, code.split("\n"))))))
    return re.sub(r"^```(\w+)", rf'```{{.\1 style="font-size: {size}px"}}', code)


def height(block: str) -> int:
    """About how many pixels a block takes."""
    if code := re.match(r"```.*?(?:font-size: (\d+)px.*?)?\n(.*)```", block, re.DOTALL):
        size = int(code[1] or 22)
        return 36 + int(size * 1.4) * sum(max(1, ceil(len(line) * size / 1890)) for line in code[2].splitlines())
    if block.startswith("!["):
        return 480
    if block.startswith("$$"):
        return 90 + 50 * block.count(r"\cr")
    if block.startswith("|"):
        return 48 * block.count("\n") + 24
    return sum(20 + 42 * ceil(len(text) / 74) for text in re.split(r"\n\n|\n(?=[-\d])", block) if text)


def make_deck(lesson: Lesson, folder: Path) -> Path:
    """Writes the slides of a lesson as one file."""
    page, file = lesson.page.read_text(encoding="utf-8"), folder / f"{lesson.page.stem}.html"
    title = f"--metadata=pagetitle:{page.splitlines()[0].lstrip('# ')}"
    pypandoc.convert_text(slides(page), "dzslides", FORMAT, [*OPTIONS, title], outputfile=file)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lessons", nargs="*", type=int, metavar="LESSON", help="number of a lesson; all without")
    asked = parser.parse_args().lessons
    folder = LESSONS.parent / "slides"
    folder.mkdir(exist_ok=True)
    for lesson in all_lessons():
        if not asked or lesson.number in asked:
            print(make_deck(lesson, folder).relative_to(LESSONS.parent))


if __name__ == "__main__":
    main()
