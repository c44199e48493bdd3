// eslint's own list of likely faults, for modules that run in a browser. How the code looks is prettier's business.

import js from "@eslint/js";

const BROWSER = `AbortController Blob DOMParser DecompressionStream Event EventTarget IntersectionObserver MessageEvent ResizeObserver
  Response TextDecoder TextEncoder URL URLSearchParams addEventListener atob clearInterval clearTimeout document fetch getComputedStyle
  history location matchMedia performance cancelAnimationFrame requestAnimationFrame sessionStorage setInterval setTimeout window`;

export default [
  js.configs.recommended,
  {
    languageOptions: { globals: Object.fromEntries(BROWSER.split(/\s+/).map((name) => [name, "readonly"])) },
    linterOptions: { reportUnusedDisableDirectives: "error" },
  },
];
