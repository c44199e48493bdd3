// An exported page: its numbers come from the file itself, where they stand as compressed JSON in base64.

import { showPage } from "./page.js";
import { offlineSource } from "./source_offline.js";
import { bytesOf } from "./tensor.js";

const compressed = bytesOf(document.getElementById("recorded").textContent);
const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
const recorded = await new Response(stream).json();
// Without an address that says otherwise, the page opens with what was recorded.
const [tour] = recorded.tours;
const view = tour ? { tour: tour.name } : { checkpoint: recorded.latest, text: recorded.text };
if (!location.hash) history.replaceState(null, "", `#${new URLSearchParams(view)}`);
showPage(offlineSource(recorded));
