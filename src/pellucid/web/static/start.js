// The page as `pellucid serve` shows it: its numbers come from the server.

import { showPage } from "./page.js";
import { serverSource } from "./source_server.js";

showPage(serverSource());
