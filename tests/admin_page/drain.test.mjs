// The drain from the page: it asks first, shows how far it is, and says what comes next.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { says, scenes } from "./support/browser.mjs";

const RELAY_DRAINING = 1012;

scenes("the drain", {
    "asks first, and cancelled it does nothing": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        await says(page, "#desktops", "1");
        const dialog = page.getByRole("dialog", { name: "Drain this process?" });
        for (const cancel of [() => page.getByRole("button", { name: "Cancel" }).click(), () => page.keyboard.press("Escape"), () => page.keyboard.press("Enter")]) {
            await page.getByRole("button", { name: "Drain…" }).click();
            await says(page, "#drain-dialog .drain-sockets", "1 socket");
            await cancel();
            await dialog.waitFor({ state: "hidden" });
        }
        assert.equal((await (await relay.call("GET", "/admin/status")).json()).drain.phase, "serving");
        assert.ok(await desktop.isAlive());
        assert.ok(await page.locator("#drain-panel").isHidden());
        assert.deepEqual(page.faults, []);
    },

    "sends clients away with 1012, and says what to do next": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        const frozen = await relay.phone(desktop);
        await says(page, "#phones", "2");
        frozen.freeze();
        await page.getByRole("button", { name: "Drain…" }).click();
        await page.getByRole("button", { name: "Drain now" }).click();
        assert.deepEqual([await desktop.closed, await phone.closed], [RELAY_DRAINING, RELAY_DRAINING]);
        await says(page, "#phase", "drained");
        await says(page, "#drain-closed", "3 of 3 sockets closed");
        await says(page, "#drain-next", /SIGTERM/);
        await says(page, "#announcements", "Drained. Every socket is closed.");
        await page.getByRole("button", { name: "Drain…" }).waitFor({ state: "hidden" });
        assert.deepEqual(page.faults, []);

        await relay.stop("SIGTERM");
        await says(page, "#lost", /^The drained process has ended, or cannot be reached; trying again\./);
        await relay.restart();
        await says(page, "#phase", "serving");
        await page.locator("#drain-panel").waitFor({ state: "hidden" });
        await page.getByRole("button", { name: "Drain…" }).waitFor();
    },

    // Each step lasts as long as the test looks at it, which a real drain does not.
    "shows how far it is": async ({ relay, open }) => {
        const page = await open();
        const status = await (await relay.call("GET", "/admin/status")).json();
        const steps = [
            [{ phase: "serving", inFlight: 0, socketsLeft: 8, elapsedMs: 0 }, null, null],
            [{ phase: "draining", inFlight: 3, socketsLeft: 8, elapsedMs: 250 }, "Finish work in progress", 0, "0 of 8 sockets closed", "250 ms"],
            [{ phase: "closing", inFlight: 0, socketsLeft: 2, elapsedMs: 61_000 }, "Close sockets", 0.75, "6 of 8 sockets closed", "1 min 1 s"],
            [{ phase: "drained", inFlight: 0, socketsLeft: 0, elapsedMs: 62_000 }, "Drained", 1, "8 of 8 sockets closed", "1 min 2 s"],
        ];
        for (const [progress, step, position, closed, elapsed] of steps) {
            await page.unroute("**/admin/status");
            await page.route("**/admin/status", (route) => route.fulfill({ json: { ...status, drain: progress } }));
            await says(page, "#phase", progress.phase);
            if (step === null) {
                // The most that was seen is what the bar is of.
                await says(page, "#drain-dialog .drain-sockets", "8 sockets", "attached");
                continue;
            }
            await says(page, "#drain-steps [aria-current=step]", step);
            await says(page, "#drain-closed", closed);
            await says(page, "#drain-elapsed", elapsed);
            await says(page, "#drain-in-flight", `${progress.inFlight}`);
            await says(page, "#drain-left", `${progress.socketsLeft}`);
            assert.equal(await page.locator("#drain-bar").evaluate((bar) => bar.position), position);
            assert.equal(await page.locator("#drain-next").isVisible(), progress.phase === "drained");
        }
        assert.deepEqual(page.faults, []);
    },

    "that was begun elsewhere is shown too, also to a page that comes later": async ({ relay, open }) => {
        const page = await open();
        await (await relay.call("POST", "/admin/drain")).json();
        await says(page, "#phase", "drained");
        await says(page, "#drain-closed", "0 of 0 sockets closed");
        const later = await open();
        await says(later, "#phase", "drained");
        await later.locator("#drain-next").waitFor();
    },
});
