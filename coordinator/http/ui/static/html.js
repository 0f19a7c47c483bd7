// What every view is written with: markup as tagged templates, state as signals.
import { Fragment, h } from "./preact.js";
import htm from "./htm.js";

export const html = htm.bind(h);
export { Fragment };
export { render } from "./preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact-hooks.js";
export { batch, computed, effect, signal } from "./signals.js";
