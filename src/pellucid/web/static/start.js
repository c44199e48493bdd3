// The page as `pellucid serve` shows it: its numbers come from the server.

import { h } from "./elements.js";
import { showPage } from "./page.js";
import { serverSource } from "./source_server.js";

showPage(serverSource());

const lab = h("a", { href: "lab" }, "In this browser");
document.querySelector("footer").prepend(h("p", h("b", "Train one yourself. "), lab, ", with nothing to install."));
