// Text to token ids and back, as src/pellucid/tokenizer/ does it: byte-level byte-pair encoding, or one token for each
// character. Made from the run's tokenizer.json.

// Where a text is cut into words before pairs are joined, so that no token crosses the end of a word (GPT-2; Radford et
// al. 2019). \p{White_Space}, not \s, which has U+FEFF in JavaScript and lacks U+0085.
const WORD = new RegExp(
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
    "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+",
  "gu",
);

export class Tokenizer {
  constructor(description) {
    const { vocab, merges } = description.model;
    const control = description.added_tokens;
    this.vocabulary = new Map(Object.entries(vocab));
    for (const { content } of control) this.vocabulary.delete(content); // no text turns into them
    this.control = new Map(control.map(({ content, id }) => [content, id]));
    this.isByteLevel = description.pre_tokenizer !== null;
    this.rank = new Map(merges.map((pair, rank) => [pair.join(" "), rank]));

    const bytesOf = this.isByteLevel
      ? (token) => Uint8Array.from(token, (symbol) => BYTE_OF_SYMBOL.get(symbol))
      : (token) => new TextEncoder().encode(token);
    this.bytes = []; // of each id; none for a control token
    for (const [token, id] of this.vocabulary) this.bytes[id] = bytesOf(token);
    for (const { id } of control) this.bytes[id] = new Uint8Array();
  }

  // A conversation, in whose text the marks of the chat template are written; without any, the text is a question.
  encodeMarked(text) {
    const parts = text.split(/(<\|user\|>|<\|assistant\|>|<\|end\|>)/);
    if (parts.length === 1) return this.encodeMarked(`<|user|>${text}<|end|><|assistant|>`);
    return parts.flatMap((part, i) => (i % 2 ? this.control.get(part) : this.encode(part)));
  }

  // Token ids. An Error for a character that a character vocabulary lacks.
  encode(text) {
    const words = this.isByteLevel ? (text.match(WORD) ?? []).map(symbolsOf) : [[...text]];
    return words.flatMap((symbols) => this.joined(symbols)).map((token) => this.idOf(token));
  }

  idOf(token) {
    if (!this.vocabulary.has(token)) throw new Error(`the character ${token} is not in the vocabulary of this run`);
    return this.vocabulary.get(token);
  }

  // Of all neighbours, the pair that was learned first becomes one token; again, until no pair was learned.
  joined(tokens) {
    for (;;) {
      const ranks = tokens.slice(1).map((right, i) => this.rank.get(`${tokens[i]} ${right}`) ?? Infinity);
      const first = ranks.reduce((best, rank, i) => (rank < ranks[best] ? i : best), 0);
      if (!(ranks[first] < Infinity)) return tokens;
      tokens = tokens.toSpliced(first, 2, tokens[first] + tokens[first + 1]);
    }
  }

  // The text of the ids. Bytes that are no whole character become U+FFFD.
  decode(ids) {
    const bytes = Uint8Array.from(ids.flatMap((id) => Array.from(this.bytes[id])));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  }
}

// Byte-level vocabularies write bytes as printable characters: those that are printable in Latin-1 as themselves, the
// others as the characters from U+0100 on (GPT-2).
const isPrintable = (byte) => (0x21 <= byte && byte <= 0x7e) || (0xa1 <= byte && byte <= 0xac) || 0xae <= byte;
const BYTES = Array.from({ length: 256 }, (_, byte) => byte);
const OTHERS = BYTES.filter((byte) => !isPrintable(byte));
const SYMBOLS = BYTES.map((byte) => String.fromCharCode(isPrintable(byte) ? byte : 256 + OTHERS.indexOf(byte)));
const BYTE_OF_SYMBOL = new Map(SYMBOLS.map((symbol, byte) => [symbol, byte]));

function symbolsOf(word) {
  return Array.from(new TextEncoder().encode(word), (byte) => SYMBOLS[byte]);
}
