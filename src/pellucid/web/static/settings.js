// How the page looks: large type for a projector, light or dark, and guessing before the answer is shown.

import { h } from "./elements.js";

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

export function settings(root, view) {
  const set = (changes) => view.store.set(changes);
  const follow = (show) => (view.store.onChange(show), show());
  const toggle = (key, name) => {
    const button = h("button", { id: `set-${key}`, onclick: () => set({ [key]: !view.store.get()[key] }) }, name);
    follow(() => button.setAttribute("aria-pressed", view.store.get()[key]));
    return button;
  };
  const options = Object.entries(THEMES).map(([value, name]) => h("option", { value }, name));
  const theme = h("select", { id: "set-theme", onchange: () => set({ theme: theme.value }) }, options);
  follow(() => (theme.value = view.store.get().theme));
  root.append(
    h("span.if-next", toggle("guess", "Guess first")),
    toggle("large", "Projector"),
    h("label", h("span.sr", "Theme"), theme),
  );
}

export function applySettings({ large, theme }) {
  const { classList, dataset } = document.documentElement;
  classList.toggle("large", large);
  dataset.theme = theme;
}
