// For every reader: narrow screens, both colour schemes, keyboards, and nothing from elsewhere.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { says, scenes } from "./support/browser.mjs";

/** WCAG 2.2, success criterion 1.4.3. */
const CONTRAST_MIN = 4.5;

scenes("the page's looks", {
    "at 360 px nothing makes the page scroll sideways, and connections can be closed": async ({ relay, open, visit }) => {
        const gate = await visit({ viewport: { width: 360, height: 740 } });
        assert.equal(await overflow(gate), 0);
        const page = await open({ viewport: { width: 360, height: 740 }, hasTouch: true });
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        await says(page, "#connections-count", "2 connected");
        assert.equal(await overflow(page), 0);
        const row = page.locator(`tr[data-connection="${phone.connectionId}"]`);
        await row.locator(".ask").tap();
        assert.equal(await overflow(page), 0);
        await row.locator(".confirm").tap();
        assert.equal(await phone.closed, 1012);
        await page.getByRole("button", { name: "Drain…" }).tap();
        assert.equal(await overflow(page), 0);
        await page.getByRole("button", { name: "Drain now" }).tap();
        await says(page, "#phase", "drained");
        assert.equal(await overflow(page), 0);
        assert.deepEqual(page.faults, []);
    },

    "the question whether to close a connection lies over no text": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        await page.locator(`tr[data-connection="${phone.connectionId}"] .ask`).click();
        for (const width of [1280, 768, 360]) {
            await page.setViewportSize({ width, height: 900 });
            assert.deepEqual(await page.locator("tr.asking").evaluate(covered), [], `at ${width} px`);
        }
    },

    "text has its contrast in light and dark": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        await relay.phone(desktop);
        await says(page, "#connections-count", "2 connected");
        await page.locator(".ask").first().click();
        const judged = {};
        for (const colorScheme of ["light", "dark"]) {
            await page.emulateMedia({ colorScheme });
            // Whatever is hidden now is judged as well: banners, the drain and its dialog, the question for the token.
            await page.evaluate(() => {
                for (const hidden of document.querySelectorAll("[hidden]")) hidden.hidden = false;
                for (const text of document.querySelectorAll(".banner, .error, .said")) text.textContent = "words";
                document.getElementById("drain-dialog").show();
            });
            const texts = await page.evaluate(contrasts);
            judged[colorScheme] = texts.length;
            const faint = texts.filter(({ contrast }) => contrast < CONTRAST_MIN);
            assert.deepEqual(faint, [], colorScheme);
        }
        assert.ok(judged.light > 60 && judged.dark > 60, JSON.stringify(judged));
        const grounds = [];
        for (const colorScheme of ["light", "dark"]) {
            await page.emulateMedia({ colorScheme });
            grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
        }
        assert.notEqual(grounds[0], grounds[1]);
    },

    "everything can be reached and named with a keyboard": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        await says(page, "#connections-count", "1 connected");
        const unnamed = await page.evaluate(() => {
            const name = (control) => control.getAttribute("aria-label") ?? control.labels?.[0]?.textContent ?? control.textContent;
            const controls = [...document.querySelectorAll("button, input, progress, svg[role=img]")];
            return controls.filter((control) => !name(control)?.trim()).map((control) => control.outerHTML);
        });
        assert.deepEqual(unnamed, []);
        await page.getByLabel("Search connections").focus();
        const reached = [];
        for (let step = 0; step < 9; step += 1) {
            await page.keyboard.press("Tab");
            reached.push(await page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent));
        }
        assert.deepEqual(reached.slice(0, 6), ["Role", "Account", "Route", "Connected", "Last heard", "Queued"]);
        assert.ok(reached.includes(`Close desktop ${desktop.device}`), reached.join());
    },
});

/** By how many pixels the page is wider than its window. */
function overflow(page) {
    return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

/** Runs in the page: the contrast of each visible text to what it stands on. */
function contrasts() {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const channels = (colour, under) => {
        canvas.fillStyle = `rgb(${under})`;
        canvas.fillRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    };
    const ancestors = (element) => (element === null ? [] : [...ancestors(element.parentElement), element]);
    const ground = (element) => ancestors(element).reduce((under, { }, index, all) => channels(getComputedStyle(all[index]).backgroundColor, under), [255, 255, 255]);
    const luminance = (rgb) => {
        const [red, green, blue] = rgb.map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const judged = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (texts.currentNode.textContent.trim() === "" || !element.checkVisibility({ visibilityProperty: true }) || element.closest("script, style, noscript")) continue;
        const under = ground(element);
        const [light, dark] = [luminance(channels(getComputedStyle(element).color, under)), luminance(under)].sort((a, b) => b - a);
        judged.push({ text: texts.currentNode.textContent.trim(), contrast: (light + 0.05) / (dark + 0.05) });
    }
    return judged;
}

/** The texts of a row that its question lies over, wholly or in part. */
function covered(row) {
    const question = row.querySelector(".sure").getBoundingClientRect();
    const isUnder = ({ left, right, top, bottom }) =>
        left < question.right && right > question.left && top < question.bottom && bottom > question.top;
    return [...row.querySelectorAll(".role, .user, .route, time, .queued")]
        .filter((text) => text.checkVisibility({ visibilityProperty: true }) && isUnder(text.getBoundingClientRect()))
        .map((text) => text.className);
}
