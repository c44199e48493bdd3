"""A thought and the answer after it: apart again, however the text was cut into pieces."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.corpora.thinking import BEGIN, END, apart, with_thought

PARTS = st.lists(st.sampled_from([BEGIN, END, "<", "<thi", "</", "think>", "fox", " ", ""]), max_size=6).map("".join)


@given(thought=PARTS.filter(lambda text: END not in f"{text}{END}"[:-1]), answer=PARTS)
@example(thought="a < b", answer="</think> is a mark")
def test_a_thought_and_its_answer_come_apart_again(thought, answer):
    text = with_thought(thought, answer)
    assert apart(text) == ((thought, answer) if thought else apart(answer))
    assert thought or text == answer


@given(text=PARTS, begins=st.booleans())
def test_of_a_text_that_goes_on_only_what_stays_is_told(text, begins):
    text = BEGIN * begins + text
    whole = apart(text)
    told = [apart(text[:n], is_whole=False) for n in range(len(text) + 1)] + [whole]
    for before, after in pairwise(told):
        assert all(new.startswith(old) for old, new in zip(before, after, strict=True)), (before, after)
    held = len("".join(whole)) - len("".join(told[-2]))
    assert held < max(len(BEGIN), len(END)), "no more than the beginning of a mark is held back"
