// Light or dark: as the system says, unless somebody chose.
import { signal } from "./html.js";

const KEY = "rallypoint-theme";
export const THEMES = ["system", "light", "dark"];

/** What was chosen; a change of the system's own makes it a new object, so that charts are drawn anew. */
export const theme = signal({ chosen: THEMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "system" });

export function chooseTheme(chosen) {
  localStorage.setItem(KEY, chosen);
  theme.value = { chosen };
}

theme.subscribe(({ chosen }) => {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (theme.value = { ...theme.value }));
