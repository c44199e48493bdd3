"""A language that is known because it is a list, and its corpus: what the real ones must agree with."""

from pellucid.corpora.drawn import Drawn
from pellucid.languages.language import Language, NextWord


class Listed(Language):
    """Stories with their probabilities. Their second letters take a choice."""

    skills = ("choice", "spelling")

    def __init__(self, stories):
        self.stories = dict(stories)
        self.identity = {"type": "listed", "stories": list(self.stories)}

    def write(self, rng):
        return rng.choices(list(self.stories), list(self.stories.values()))[0]

    def words_on(self, prefix, word_length):
        words = {}
        for text, p in self.stories.items():
            rest = text.removeprefix(prefix) if text.startswith(prefix) else ""
            if not rest or (prefix and word_length(prefix[-1] + rest) != 1):
                continue
            length = word_length(rest)
            word = NextWord(rest[:length], length is None)
            words[word] = words.get(word, 0.0) + p
        return {word: p / sum(words.values()) for word, p in words.items()}

    def words_of(self, text, word_length):
        start = 0
        while start < len(text):
            word = text[start:][: word_length(text[start:])]
            yield word, self.words_on(text[:start], word_length)
            start += len(word)

    def next_character_distribution(self, prefix):
        characters = {}
        for text, p in self.stories.items():
            if text.startswith(prefix):
                character = text[len(prefix) :][:1]
                characters[character] = characters.get(character, 0.0) + p
        return {character: p / sum(characters.values()) for character, p in characters.items()}

    def skills_of(self, text):
        return [0 if i == 1 else 1 for i in range(len(text))]

    def log_probability(self, text):
        raise NotImplementedError("the words tell it")


class ListedCorpus(Drawn):
    """All stories once; the last `n_validation` are held out."""

    def __init__(self, stories, n_validation=1):
        super().__init__(Listed(stories), len(stories), seed=0, validation_fraction=n_validation / len(stories))

    def documents(self, split):
        texts, n = list(self.language.stories), self._n_validation
        return iter(texts[:-n] if split == "train" else texts[-n:])
