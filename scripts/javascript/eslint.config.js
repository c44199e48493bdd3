// eslint's own list of likely faults, for modules that run in a browser. How the code looks is prettier's business.

import js from "@eslint/js";

const BROWSER = `AbortController Blob DOMParser DOMRect DecompressionStream Event EventTarget IntersectionObserver MessageEvent Node ResizeObserver
  Response TextDecoder TextEncoder URL URLSearchParams XMLSerializer addEventListener atob clearInterval clearTimeout document fetch getComputedStyle
  history location matchMedia navigator performance cancelAnimationFrame requestAnimationFrame postMessage crypto Worker sessionStorage setInterval setTimeout window`;

export default [
  js.configs.recommended,
  {
    languageOptions: { globals: Object.fromEntries(BROWSER.split(/\s+/).map((name) => [name, "readonly"])) },
    linterOptions: { reportUnusedDisableDirectives: "error" },
  },
];
