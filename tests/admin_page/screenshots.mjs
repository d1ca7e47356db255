// Makes the pictures of the page in docs/, of a real relay with lively clients: `npm run screenshots` here.

import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import { launch, openPage, signIn } from "./support/browser.mjs";
import { Relay } from "./support/relay.mjs";

const ACCOUNTS = 24;
/** Phones that stop reading before the drain, so that closing takes long enough to be seen. */
const FROZEN = 19;
/** How long clients talk before the first picture, in milliseconds. */
const LIVELY_MS = Number(process.env.LIVELY_MS ?? 270_000);

const picture = (name) => fileURLToPath(new URL(`../../docs/${name}.png`, import.meta.url));
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const relay = await Relay.start();
const browser = await launch();
const phones = [];
let isOver = false;
try {
    const light = await openPage(browser, relay, { viewport: { width: 1320, height: 920 } });
    const dark = await openPage(browser, relay, { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, colorScheme: "dark" });
    await signIn(light, relay);
    await signIn(dark, relay);
    for (let index = 0; index < ACCOUNTS; index += 1) {
        await connectAccount(index);
        await sleep((Math.random() * LIVELY_MS) / ACCOUNTS);
    }
    await sleep(LIVELY_MS / 2);
    await light.screenshot({ path: picture("admin-page") });
    await dark.screenshot({ path: picture("admin-page-phone") });

    phones.slice(0, FROZEN).forEach((phone) => phone.freeze());
    await light.setViewportSize({ width: 1320, height: 640 });
    await light.emulateMedia({ colorScheme: "dark" });
    await light.locator("#drain").click();
    await light.locator("#drain-confirm").click();
    await light.locator("#drain-left", { hasText: new RegExp(`^${FROZEN}$`) }).waitFor();
    await light.screenshot({ path: picture("admin-page-drain") });
} finally {
    isOver = true;
    await browser.close();
    await relay.remove();
}

/** A desktop that takes its time to answer and tells its session's timeline, and phones that call it and watch. */
async function connectAccount(index) {
    const desktop = await relay.desktop(randomUUID());
    desktop.delay = () => 4 - 25 * Math.log(1 - Math.random());
    let generation = null;
    desktop.onEvent = ({ payload }) => (generation = payload.authorizationGeneration ?? null);
    repeat(() => {
        if (generation === null) return;
        desktop.send("event", { eventType: "chat:stream", payload: { appSessionId: "s-1", authorizationGeneration: generation, text: "word" } });
    }, 120);
    for (let number = 0; number <= index % 3; number += 1) {
        const phone = await relay.phone(desktop);
        phones.push(phone);
        const watch = () => phone.send("event", { eventType: "chat:timeline-interest", payload: { appSessionId: "s-1", active: true } });
        if (number === 0) watch();
        repeat(() => number === 0 && watch(), 20_000);
        // More in some minutes than in others.
        repeat(() => Math.random() < 0.5 + 0.5 * Math.sin(Date.now() / 17_000) && phone.call(), 300);
        repeat(() => Math.random() < 0.03 && phone.call("session.missing"), 1000);
    }
}

function repeat(act, milliseconds) {
    const timer = setInterval(() => (isOver ? clearInterval(timer) : act()), milliseconds);
}
