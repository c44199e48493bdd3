// Brings the live parts of a lesson to life: <div class="live" data-live="tape"></div>.

import { rope } from "./rope.js";
import { tape } from "./tape.js";

const PARTS = { rope, tape };

for (const place of document.querySelectorAll(".live")) PARTS[place.dataset.live](place);
