// How the page looks: large type for a projector, light or dark, and guessing before the answer is shown.

import { h } from "./elements.js";

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

export function settings(root, view) {
  const set = (changes) => view.store.set(changes);
  const toggle = (key, name) => {
    const button = h("button", { id: `set-${key}`, onclick: () => set({ [key]: !view.store.get()[key] }) }, name);
    const show = () => button.setAttribute("aria-pressed", view.store.get()[key]);
    view.store.onChange(show);
    show();
    return button;
  };
  const options = Object.entries(THEMES).map(([value, name]) => h("option", { value }, name));
  const theme = h("select", { id: "set-theme", onchange: () => set({ theme: theme.value }) }, options);
  const showTheme = () => (theme.value = view.store.get().theme);
  view.store.onChange(showTheme);
  showTheme();
  root.append(toggle("guess", "Guess first"), toggle("large", "Projector"), h("label", h("span.sr", "Theme"), theme));
}

export function applySettings({ large, theme }) {
  const { classList, dataset } = document.documentElement;
  classList.toggle("large", large);
  dataset.theme = theme;
}
