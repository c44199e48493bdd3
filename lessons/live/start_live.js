// Brings the live parts of a lesson to life: <div class="live" data-live="tape"></div>.

import { beam } from "./beam.js";
import { cache } from "./cache.js";
import { edge } from "./edge.js";
import { fading } from "./fading.js";
import { floats } from "./floats.js";
import { guess } from "./guess.js";
import { logits } from "./logits.js";
import { merges } from "./merges.js";
import { particles } from "./particles.js";
import { ring } from "./ring.js";
import { rope } from "./rope.js";
import { tape } from "./tape.js";
import { tilt } from "./tilt.js";

const PARTS = { beam, cache, edge, fading, floats, guess, logits, merges, particles, ring, rope, tape, tilt };

for (const place of document.querySelectorAll(".live")) PARTS[place.dataset.live](place);
