"""The skill that each character of a story takes to predict.

There is one rule: a character needs a skill if, for a reader without that skill, it could have been a different one.
    choice     more than one next character is possible: entropy, which no skill removes
    recall     the text repeats a name or thing, and another one that could have been drawn differs in this character;
               or, in the same way, the text tells
    fact       knowledge about an animal,
    agreement  he/she, was/were, a/an,
    count      small arithmetic over what was said,
    moral      which lesson fits what happened
    spelling   all other characters: the rest of a word or a fixed phrase (spaces and punctuation included)
So in "Hazel", said earlier, "H" (it might be "Bramble") and "a" (it might be "Hugo") are recall, and "zel" is spelling.
The tables of fables.rules name the skill of what they remember.
"""

from pellucid.languages.language import SPELLING

SKILLS = ("choice", SPELLING, "agreement", "recall", "fact", "count", "moral")
INSTRUCTION = "instruction"  # for choices that an instruction has decided (see `about`)
