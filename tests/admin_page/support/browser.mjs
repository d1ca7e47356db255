// Headless Chromium, and pages that notice what a page must not do.
//
// A test that waits for a page that looks every second is idle most of its time, so several go on at once; each has a relay and a tab
// of its own.

import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { Relay } from "./relay.mjs";

/** Scenes that go on at once. */
const AT_ONCE = 4;
/** No wait for something to show takes longer, in milliseconds, on a machine with much other work. */
const WAIT_MS = 60_000;
/** Nor does a scene; a wait that is in vain ends before, since it says what for. */
const TIMEOUT_MS = 120_000;
/** Debian's name for it first. */
const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** A browser; the program is `CHROMIUM` or found in the path. */
export async function launch() {
    // Chromium refuses its sandbox to root.
    const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
    return chromium.launch({ executablePath: process.env.CHROMIUM ?? find(), args });
}

function find() {
    for (const name of NAMES) {
        try {
            return execFileSync("which", [name], { encoding: "utf8" }).trim();
        } catch {
            // The next one, then.
        }
    }
    throw new Error(`none of ${NAMES.join(", ")} is installed`);
}

/** A group of scenes, each of them `[name, body]`, with one browser. A body gets a relay and `open`, for tabs that know the token. */
export function scenes(name, all) {
    describe(name, { concurrency: AT_ONCE }, () => {
        let browser;
        before(async () => (browser = await launch()));
        after(() => browser.close());
        for (const [title, body] of Object.entries(all)) {
            test(title, { timeout: TIMEOUT_MS }, async () => {
                const relay = await Relay.start();
                const pages = [];
                const visit = async (options) => {
                    pages.push(await openPage(browser, relay, options));
                    return pages.at(-1);
                };
                const open = async (options) => {
                    const page = await visit(options);
                    await signIn(page, relay);
                    return page;
                };
                try {
                    await body({ relay, open, visit });
                } finally {
                    await Promise.all(pages.map((page) => page.context().close()));
                    await relay.remove();
                }
            });
        }
    });
}

/**
 * A tab at the page of a relay. `faults` has what no page may do: errors of scripts or of the console, among them violations of the
 * policy, and requests to elsewhere.
 */
export async function openPage(browser, relay, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    page.faults = [];
    page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
    page.on("pageerror", (error) => page.faults.push(String(error)));
    page.on("request", (request) => new URL(request.url()).host !== relay.admin && page.faults.push(`asked ${request.url()}`));
    await page.goto(relay.page);
    return page;
}

/** Gives the token, and waits until the page shows the relay. */
export async function signIn(page, relay) {
    await page.getByLabel("Admin token").fill(relay.token);
    await page.keyboard.press("Enter");
    await page.locator("#instance", { hasText: relay.relayInstanceId }).waitFor();
}

/** Waits until an element says exactly this, or fits this pattern. */
export async function says(page, selector, text, state = "visible") {
    const pattern = text instanceof RegExp ? text : new RegExp(`^${text.replace(/[^\w\s]/g, "\\$&")}$`);
    await page.locator(selector).filter({ hasText: pattern }).waitFor({ state });
}
