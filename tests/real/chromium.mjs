// A browser that does what it is told: a JSON object a line comes in, and one goes out for each. See chromium.py.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, profile] = process.argv.slice(2);
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args });
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let page = null;
let complaints = [];

const commands = {
  async open({ url, width, height, scheme }) {
    const old = page;
    page = await context.newPage();
    await old?.close();
    complaints = [];
    page.on("pageerror", (error) => complaints.push(`error: ${error.stack}`));
    page.on("console", (message) => {
      // A service that is away makes errors of the network, which the page itself tells.
      const text = message.text();
      if (["error", "warning"].includes(message.type()) && !/net::ERR_|status of \d+/.test(text)) complaints.push(`console: ${text}`);
    });
    await page.addInitScript(() => {
      globalThis.violations = [];
      document.addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    });
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(url);
    await page.evaluate(() => localStorage.clear());
  },
  async look({ width, height, scheme }) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
  },
  go: ({ hash }) => page.evaluate((to) => void (location.hash = to), hash),
  async wait({ selector, text, gone, ms }) {
    try {
      const found = page.locator(selector).filter({ hasText: text || undefined }).first();
      await found.waitFor({ state: gone ? "detached" : "attached", timeout: ms });
      return gone ? "" : ((await found.textContent()) ?? "");
    } catch (error) {
      const shown = await page.evaluate(() => document.querySelector("main")?.innerText.slice(0, 2000));
      throw new Error(`${selector} with ${JSON.stringify(text)} did not ${gone ? "go" : "come"}: ${error.message}\nThe page shows:\n${shown}`);
    }
  },
  texts: ({ selector }) => page.locator(selector).allTextContents(),
  click: ({ selector }) => page.locator(selector).first().click({ timeout: 60_000 }),
  fill: ({ selector, text }) => page.locator(selector).first().fill(text, { timeout: 60_000 }),
  async press({ keys }) {
    for (const key of keys) await page.keyboard.press(key);
  },
  evaluate: ({ expression }) => page.evaluate(expression),
  picture: async ({ path, whole }) => void (await page.screenshot({ path, fullPage: whole })),
  async axe() {
    if (!(await page.evaluate(() => Boolean(globalThis.axe)))) {
      // By the debugger: the page's policy would not let it in.
      const debug = await context.newCDPSession(page);
      await debug.send("Runtime.evaluate", { expression: axe });
    }
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return found.violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`));
  },
  async complaints() {
    return [...complaints, ...(await page.evaluate(() => globalThis.violations))];
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { what, ...more } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await commands[what](more)) ?? null };
  } catch (error) {
    answer = { error: `${what}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await context.close();
