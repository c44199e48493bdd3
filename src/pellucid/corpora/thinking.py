"""A thought that an answer of a conversation begins with, marked as models that reason mark it.

    <think>A fox, and grapes.</think>Once a fox saw grapes.

The marks are text like any other: a model learns them with the answers it is shown.
"""

BEGIN, END = "<think>", "</think>"


def with_thought(thought: str | None, answer: str) -> str:
    """The text of an answer that begins with a thought, if there is one."""
    return f"{BEGIN}{thought}{END}{answer}" if thought else answer


def apart(text: str, *, is_whole: bool = True) -> tuple[str, str]:
    """The thought that a text begins with, and the answer after it.

    Of a text that goes on, an end that may be part of a mark is in neither.
    """
    if not text.startswith(BEGIN):
        return "", "" if BEGIN.startswith(text) and not is_whole else text
    thought, mark, answer = text.removeprefix(BEGIN).partition(END)
    n_held = 0 if mark or is_whole else max(n for n in range(len(END)) if thought.endswith(END[:n]))
    return thought[: len(thought) - n_held], answer
