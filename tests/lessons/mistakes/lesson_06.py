"""What students think in lesson 6, and the sentences meant for it."""

import math
from collections import Counter
from itertools import pairwise

from trying import also_right, mistake


@mistake("it stands at two places")
def count_pairs(words):
    counts = Counter()
    for word, n in words.items():
        last = {}
        for i, pair in enumerate(pairwise(word)):
            if last.get(pair) != i - 1:
                counts[pair] += n
                last[pair] = i
    return counts


@mistake("you count each different word once")
def count_pairs(words):
    return Counter(pair for word in words for pair in pairwise(word))


@mistake("with the first of another")
def count_pairs(words):
    return Counter(pairwise(i for word, n in words.items() for _ in range(n) for i in word))


@mistake("are two pairs")
def count_pairs(words):
    counts = Counter()
    for word, n in words.items():
        for a, b in pairwise(word):
            counts[min(a, b), max(a, b)] += n
    return counts


@also_right
def count_pairs(words):
    """A plain dictionary, in another order."""
    counts = {}
    for word, n in reversed(list(words.items())):
        for i in range(1, len(word)):
            counts[word[i - 1], word[i]] = counts.get((word[i - 1], word[i]), 0) + n
    return counts


@mistake("cannot be used twice")
def merge(ids, pair, new_id):
    merged = []
    for i in range(len(ids)):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
        elif i == 0 or tuple(ids[i - 1 : i + 1]) != pair:
            merged.append(ids[i])
    return merged


@mistake("from right to left")
def merge(ids, pair, new_id):
    merged, left = [], list(ids)
    while left:
        if tuple(left[-2:]) == pair:
            merged.insert(0, new_id)
            del left[-2:]
        else:
            merged.insert(0, left.pop())
    return merged


@mistake("only the first place is merged")
def merge(ids, pair, new_id):
    for i in range(len(ids) - 1):
        if tuple(ids[i : i + 2]) == pair:
            return [*ids[:i], new_id, *ids[i + 2 :]]
    return list(ids)


@mistake("a merge replaces a *pair*")
def merge(ids, pair, new_id):
    return [new_id if i in pair else i for i in ids]


@also_right
def merge(ids, pair, new_id):
    merged = []
    for i in ids:
        if merged and (merged[-1], i) == pair:
            merged[-1] = new_id
        else:
            merged.append(i)
    return merged


@mistake("compare ids, not digits")
def merge(ids, pair, new_id):
    """Text in place of numbers."""
    text = " ".join(map(str, ids)).replace(f"{pair[0]} {pair[1]}", str(new_id))
    return [int(i) for i in text.split()]


@also_right
def merge(ids, pair, new_id):
    """A stack: what comes may go together with what lies on top."""
    merged = []
    for i in ids:
        if merged and (merged[-1], i) == pair:
            merged[-1] = new_id
        else:
            merged.append(i)
    return merged


@mistake("count words as often as they occur")
def learn_merges(text, n_merges):
    words = dict.fromkeys(spelled(text), 1)
    merges = {}
    while len(merges) < n_merges and (counts := count_pairs(words)):
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < 2:
            break
        merges[best] = 256 + len(merges)
        words = {tuple(merge(word, best, merges[best])): 1 for word in words}
    return merges


@mistake("count the words as they are *now*")
def learn_merges(text, n_merges):
    counts = count_pairs(spelled(text))
    best = sorted((pair for pair in counts if counts[pair] > 1), key=lambda pair: (-counts[pair], pair))
    return {pair: 256 + i for i, pair in enumerate(best[:n_merges])}


@mistake("the one with the smallest ids goes first")
def learn_merges(text, n_merges):
    words = spelled(text)
    merges = {}
    while len(merges) < n_merges and (counts := count_pairs(words)):
        [(best, n_places)] = counts.most_common(1)
        if n_places < 2:
            break
        merges[best] = 256 + len(merges)
        words = {tuple(merge(word, best, merges[best])): n for word, n in words.items()}
    return merges


@mistake("what occurs once saves nothing")
def learn_merges(text, n_merges):
    words = spelled(text)
    merges = {}
    while len(merges) < n_merges and (counts := count_pairs(words)):
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges[best] = 256 + len(merges)
        words = {tuple(merge(word, best, merges[best])): n for word, n in words.items()}
    return merges


@also_right
def learn_merges(text, n_merges):
    """Counts are kept up to date: only words that have the pair are counted again."""
    frequency = dict(enumerate(spelled(text).values()))
    now = dict(enumerate(spelled(text)))
    counts, places = Counter(), {}

    def count(k, sign):
        for pair in pairwise(now[k]):
            counts[pair] += sign * frequency[k]
            places.setdefault(pair, set()).add(k)

    for k in now:
        count(k, 1)
    merges = {}
    for new_id in range(256, 256 + n_merges):
        most = max(counts.values(), default=0)
        if most < 2:
            break
        best = sorted(pair for pair, n in counts.items() if n == most)[0]
        merges[best] = new_id
        for k in list(places[best]):
            count(k, -1)
            now[k] = tuple(merge(now[k], best, new_id))
            count(k, 1)
    return merges


@mistake("Every place counts, also one that overlaps")
def learn_merges(text, n_merges):
    """Counts only what can be merged: aaa has aa once."""
    words, merges = spelled(text), {}
    while len(merges) < n_merges:
        counts = Counter()
        for word, n in words.items():
            i = 0
            while i + 1 < len(word):
                counts[word[i], word[i + 1]] += n
                i += 2 if word[i : i + 3] == (word[i],) * 3 else 1
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if counts[best] < 2:
            break
        merges[best] = 256 + len(merges)
        words = {tuple(merge(word, best, merges[best])): n for word, n in words.items()}
    return merges


@mistake("look how many there are *before* you merge")
def learn_merges(text, n_merges):
    words, merges = spelled(text), {}
    while counts := count_pairs(words):
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < 2:
            break
        merges[best] = 256 + len(merges)
        words = {tuple(merge(word, best, merges[best])): n for word, n in words.items()}
        if len(merges) >= n_merges:
            break
    return merges


@also_right
def learn_merges(text, n_merges):
    """Sorts all pairs anew each time."""
    words, merges = spelled(text), {}
    for new_id in range(256, 256 + n_merges):
        ranked = sorted((-n, pair) for pair, n in count_pairs(words).items())
        if not ranked or ranked[0][0] > -2:
            break
        merges[ranked[0][1]] = new_id
        words = {tuple(merge(list(word), ranked[0][1], new_id)): n for word, n in words.items()}
    return merges


@mistake("takes the longest token")
def encode(text, merges):
    id_of = {spelling: i for i, spelling in enumerate(spellings(merges))}
    ids = []
    for word in split_into_words(text):
        left = word.encode()
        while left:
            n = max(n for n in range(1, len(left) + 1) if left[:n] in id_of)
            ids.append(id_of[left[:n]])
            left = left[n:]
    return ids


@mistake("stands further left, but")
def encode(text, merges):
    ids = []
    for word in split_into_words(text):
        word_ids = byte_ids(word)
        while possible := [i for i, pair in enumerate(pairwise(word_ids)) if pair in merges]:
            i = possible[0]
            word_ids[i : i + 2] = [merges[tuple(word_ids[i : i + 2])]]
        ids += word_ids
    return ids


@mistake("wherever its pair occurs, not once")
def encode(text, merges):
    ids = []
    for word in split_into_words(text):
        word_ids = byte_ids(word)
        for pair, new_id in merges.items():
            pairs = list(pairwise(word_ids))
            if pair in pairs:
                i = pairs.index(pair)
                word_ids[i : i + 2] = [new_id]
        ids += word_ids
    return ids


@mistake("no token reaches from one word into another")
def encode(text, merges):
    ids = byte_ids(text)
    for pair, new_id in merges.items():
        ids = merge(ids, pair, new_id)
    return ids


@also_right
def encode(text, merges):
    """All merges in their order: a later one makes no place for an earlier one."""
    ids = []
    for word in split_into_words(text):
        word_ids = byte_ids(word)
        for pair, new_id in merges.items():
            word_ids = merge(word_ids, pair, new_id)
        ids += word_ids
    return ids


@mistake("what stands before and after the word is lost")
def encode(text, merges):
    ids = []
    for word in split_into_words(text.strip()):
        word_ids = byte_ids(word)
        for pair, new_id in merges.items():
            word_ids = merge(word_ids, pair, new_id)
        ids += word_ids
    return ids


@mistake("with 3 merges: you have")
def encode(text, merges, known={}):  # noqa: B006
    """Words are cut once and for all, even when other merges are given."""
    ids = []
    for word in split_into_words(text):
        if word not in known:
            known[word] = byte_ids(word)
            for pair, new_id in merges.items():
                known[word] = merge(known[word], pair, new_id)
        ids += known[word]
    return ids


@mistake("a comma is a word of its own")
def encode(text, merges):
    """A word is what stands between spaces."""
    ids = []
    for i, word in enumerate(text.split(" ")):
        word_ids = byte_ids(" " * (i > 0) + word)
        for pair, new_id in merges.items():
            word_ids = merge(word_ids, pair, new_id)
        ids += word_ids
    return ids


@also_right
def encode(text, merges):
    """One place at a time."""
    ids = []
    for word in split_into_words(text):
        word_ids = byte_ids(word)
        while ranked := [(merges[pair], i) for i, pair in enumerate(pairwise(word_ids)) if pair in merges]:
            new_id, i = min(ranked)
            word_ids[i : i + 2] = [new_id]
        ids += word_ids
    return ids


@mistake("put the bytes of all tokens together first")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return "".join(bytes_of[i].decode(errors="replace") for i in ids)


@mistake("you made a character of each byte")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return "".join(chr(byte) for i in ids for byte in bytes_of[i])


@mistake("vanishes without a trace")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return b"".join(bytes_of[i] for i in ids).decode(errors="ignore")


@mistake("a model may stop in the middle of a character")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return b"".join(bytes_of[i] for i in ids).decode()


@mistake("has to come back as it was")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return b"".join(bytes_of[i] for i in ids).decode(errors="replace").strip()


@mistake("has to come back as it was")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return b"".join(bytes_of[i] for i in ids).decode(errors="replace").replace("  ", " ")


@mistake("a merge may join what was merged before")
def decode(ids, merges):
    parts = {new_id: pair for pair, new_id in merges.items()}
    flat = [part for i in ids for part in parts.get(i, (i,))]
    return bytes(BYTES[i] if i < 256 else ord("?") for i in flat).decode(errors="replace")


@also_right
def decode(ids, merges):
    """A decoder that waits for the rest of a character."""
    import codecs

    decoder, bytes_of = codecs.getincrementaldecoder("utf-8")("replace"), spellings(merges)
    return "".join(decoder.decode(bytes_of[i]) for i in ids) + decoder.decode(b"", True)


@mistake("which is nats per byte")
def bits_per_byte(nats, text):
    return sum(nats) / len(text.encode())


@mistake("so the same surprise is *more* bits")
def bits_per_byte(nats, text):
    return sum(nats) * math.log(2) / len(text.encode())


@mistake("you have bits per *token*")
def bits_per_byte(nats, text):
    return sum(nats) / len(nats) / math.log(2)


@mistake("the characters; ü and ß have two bytes")
def bits_per_byte(nats, text):
    return sum(nats) / math.log(2) / len(text)


@mistake("no exponential is needed")
def bits_per_byte(nats, text):
    return math.log2(math.exp(sum(nats))) / len(text.encode())


@mistake("no exponential is needed")
def bits_per_byte(nats, text):
    return -math.log2(math.prod(math.exp(-each) for each in nats)) / len(text.encode())


@mistake("the space before and the line end after count, too")
def bits_per_byte(nats, text):
    return sum(nats) / math.log(2) / len(text.strip().encode())


@also_right
def bits_per_byte(nats, text):
    return math.fsum(nats) * math.log2(math.e) / len(bytes(text, "utf-8"))


@mistake("your numbers leave it out")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    return nats_per_token * sum(lengths) / sum(other_lengths)


@mistake("more than before")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    return nats_per_token * (sum(other_lengths) + len(other_lengths)) / (sum(lengths) + len(lengths))


@mistake("per token the floor changes")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    return nats_per_token


@mistake("the mean of each document's own ratio")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    ratios = [(n + 1) / (m + 1) for n, m in zip(lengths, other_lengths, strict=True)]
    return nats_per_token * sum(ratios) / len(ratios)


@mistake("documents of")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    """Two ends for each document."""
    n = 2 * len(lengths)
    return nats_per_token * (sum(lengths) + n) / (sum(other_lengths) + n)


@also_right
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    """Means instead of sums."""
    n = len(lengths)
    return nats_per_token * (sum(lengths) / n + 1) / (sum(other_lengths) / n + 1)


@mistake("make a new one, also if nothing was merged")
def merge(ids, pair, new_id):
    if tuple(pair) not in set(pairwise(ids)):
        return ids
    r, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == tuple(pair):
            r.append(new_id)
            i += 2
        else:
            r.append(ids[i])
            i += 1
    return r


@mistake("makes a list of them")
def merge(ids, pair, new_id):
    ids, r, i = ids + [-1], [], 0  # noqa: RUF005
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == tuple(pair):
            r.append(new_id)
            i += 2
        else:
            r.append(ids[i])
            i += 1
    return r


@mistake("� is a character with three bytes")
def decode(ids, merges):
    import re

    b = spellings(merges)
    return re.sub(chr(0xFFFD) + "+", chr(0xFFFD), b"".join(b[i] for i in ids).decode("utf-8", "replace"))


@mistake("keep no table from one call to the next")
def decode(ids, merges, kept=[]):  # noqa: B006
    if not kept:
        kept.extend(spellings(merges))
    return b"".join(kept[i] for i in ids).decode("utf-8", "replace")


@mistake("three documents of 4 tokens each")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    n = len(set(lengths))
    return nats_per_token * (sum(lengths) + n) / (sum(other_lengths) + n)


@also_right
def encode(text, merges):
    from functools import cache

    @cache
    def cut(word):
        w = byte_ids(word)
        while len(w) > 1:
            rank, i = min((merges.get((a, b), math.inf), i) for i, (a, b) in enumerate(pairwise(w)))
            if rank == math.inf:
                break
            w[i : i + 2] = [rank]
        return tuple(w)

    return [i for word in split_into_words(text) for i in cut(word)]


@also_right
def merge(ids, pair, new_id):
    return [
        ord(c) - 1
        for c in "".join(chr(i + 1) for i in ids).replace(chr(pair[0] + 1) + chr(pair[1] + 1), chr(new_id + 1))
    ]


@mistake("has changed the words that it was given")
def count_pairs(words):
    counts = Counter()
    while words:
        word, n = words.popitem()
        for pair in pairwise(word):
            counts[pair] += n
    return counts


@mistake("but you learned")
def learn_merges(text, n_merges):
    """Long words are left out."""
    words, merges = {word: n for word, n in spelled(text).items() if len(word) <= 12}, {}
    for new in range(256, 256 + n_merges):
        counts = count_pairs(words)
        if not counts or max(counts.values()) < 2:
            break
        pair = min(counts, key=lambda each: (-counts[each], each))
        merges[pair] = new
        words = {tuple(merge(word, pair, new)): n for word, n in words.items()}
    return merges


@also_right
def merge(ids, pair, new_id):
    """A character for each id: `replace` goes from left to right, too."""
    return [ord(each) for each in "".join(map(chr, ids)).replace(chr(pair[0]) + chr(pair[1]), chr(new_id))]


@mistake("with 200 merges")
def encode(text, merges):
    """A letter and its accent become one character."""
    from unicodedata import normalize

    result = []
    for word in split_into_words(normalize("NFC", text)):
        ids = byte_ids(word)
        for pair, new in merges.items():
            ids = merge(ids, pair, new)
        result += ids
    return result


@mistake("each space and line end is in the tokens")
def decode(ids, merges):
    bytes_of = spellings(merges)
    return b"".join(bytes_of[i] for i in ids).decode(errors="replace").replace("\r\n", "\n")


@mistake("two may be equally long")
def floor_in_other_tokens(nats_per_token, lengths, other_lengths):
    pairs = set(zip(lengths, other_lengths, strict=True))
    return nats_per_token * sum(n + 1 for n, _ in pairs) / sum(n + 1 for _, n in pairs)
