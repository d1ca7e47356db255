// The page against a running relay: what it shows, whom it lets in, what it keeps to itself.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { says, scenes, signIn } from "./support/browser.mjs";

const HOSTILE = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
const CLOSED_BY_OPERATOR = 1012;

const row = (page, client) => page.locator(`tr[data-connection="${client.connectionId}"]`);

scenes("the admin page", {
    "counts follow clients as they come and go": async ({ relay, open }) => {
        const page = await open();
        await says(page, "#desktops", "0");
        const desktop = await relay.desktop(randomUUID());
        const other = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        desktop.delay = () => null;
        phone.call();
        phone.send("event", { eventType: "chat:timeline-interest", payload: { appSessionId: "s-1", active: true } });
        for (const [id, number] of [["desktops", 2], ["phones", 1], ["unregistered", 0], ["accounts", 2], ["pending", 1], ["leases", 1]]) {
            await says(page, `#${id}`, `${number}`);
        }
        await says(page, "#connections-count", "3 connected");
        await says(page, "#storage", "works");
        await says(page, "#phase", "serving");
        other.end();
        phone.end();
        for (const [id, number] of [["desktops", 1], ["phones", 0], ["leases", 0]]) await says(page, `#${id}`, `${number}`);
        await says(page, "#connections-count", "1 connected");
        assert.deepEqual(page.faults, []);
    },

    "a known number of requests shows in the charts": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        // The first reading is what the others are compared with.
        await says(page, "#chart-registrations .foot", /^2 accepted, 0 refused/);
        for (let number = 0; number < 40; number += 1) await phone.call();
        for (let number = 0; number < 3; number += 1) await phone.call("session.missing");
        await says(page, "#chart-requests .foot", "40 ended in 5 min");
        await says(page, "#chart-refusals .foot", "3 in 5 min, mostly methodNotFound");
        await says(page, "#chart-latency .series-0 dd", /ms$/);
        await says(page, "#chart-requests .series-0 dd", /^[1-9].*\/s$/);
        const path = await page.locator("#chart-requests .line").getAttribute("d");
        assert.match(path, /^M[\d.]+ [\d.]+(L[\d.]+ [\d.]+)+$/);
        assert.match(await page.locator("#chart-requests svg").getAttribute("aria-label"), /^Requests, last 5 minutes\. Now: ended /);
        // What is pointed at is told instead of what is now.
        await page.locator("#chart-requests svg").hover({ position: { x: 1, y: 20 } });
        await says(page, "#chart-requests .ago", /ago$/);
        assert.deepEqual(page.faults, []);
    },

    "search narrows and columns sort": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        const other = await relay.desktop(randomUUID());
        await says(page, "#connections-count", "3 connected");
        const shown = () => page.locator("#connections-body tr").evaluateAll((rows) => rows.map((each) => each.dataset.connection));
        assert.deepEqual(await shown(), [other, phone, desktop].map(({ connectionId }) => connectionId));
        await page.getByRole("button", { name: "Connected" }).click();
        assert.deepEqual(await shown(), [desktop, phone, other].map(({ connectionId }) => connectionId));
        assert.equal(await page.getByRole("columnheader", { name: "Connected" }).getAttribute("aria-sort"), "ascending");

        const search = page.getByLabel("Search connections");
        for (const [words, found] of [
            [desktop.user, [desktop, phone]],
            [`phone ${desktop.user.slice(0, 13).toUpperCase()}`, [phone]],
            [other.connectionId, [other]],
            [phone.route, [phone]],
            [HOSTILE, []],
            ["", [desktop, phone, other]],
        ]) {
            await search.fill(words);
            assert.deepEqual(await shown(), found.map(({ connectionId }) => connectionId), words);
        }
        await search.fill("nobody");
        await says(page, "#connections-count", "0 of 3 connected");
        await says(page, "#connections-empty", /^Nothing that is connected/);
        assert.deepEqual(page.faults, []);
    },

    "closing a connection asks first, and closes that one only": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        const target = row(page, phone);
        await target.getByRole("button", { name: `Close phone ${phone.route}` }).click();
        await page.keyboard.press("Escape");
        await target.locator(".ask").waitFor();
        assert.ok(await phone.isAlive());
        await target.locator(".ask").click();
        await target.getByRole("button", { name: "Keep" }).click();
        assert.ok(await phone.isAlive());
        await target.locator(".ask").click();
        await target.getByRole("button", { name: "Close it" }).click();
        assert.equal(await phone.closed, CLOSED_BY_OPERATOR);
        await target.waitFor({ state: "detached" });
        await says(page, "#connections-count", "1 connected");
        assert.ok(await desktop.isAlive());
        assert.deepEqual(page.faults, []);
    },

    "text that looks like HTML stays text": async ({ relay, visit }) => {
        const page = await visit();
        const desktop = await relay.desktop(randomUUID(), HOSTILE);
        await relay.phone(desktop, HOSTILE);
        // The relay takes ids only; a page must not rely on that.
        await page.route("**/admin/connections", (route) => {
            const connection = { connectionId: HOSTILE, userId: HOSTILE, role: HOSTILE, route: HOSTILE, queuedBytes: 1 };
            const times = { connectedAt: HOSTILE, lastInboundAt: HOSTILE };
            return route.fulfill({ json: { connections: [{ ...connection, ...times }] } });
        });
        const status = await (await relay.call("GET", "/admin/status")).json();
        const hostile = { ...status, version: HOSTILE, storage: HOSTILE, failingSince: { [HOSTILE]: HOSTILE } };
        await page.route("**/admin/status", (route) => route.fulfill({ json: hostile }));
        await signIn(page, relay);
        await page.getByLabel("Search connections").fill("onerror");
        for (const part of [".user", ".route", ".role"]) assert.equal(await page.locator(`#connections-body ${part}`).textContent(), HOSTILE);
        assert.equal(await page.locator("#version").textContent(), HOSTILE);
        assert.equal(await page.title(), "relay");
        assert.equal(await page.locator("#app img").count(), 1);
        assert.deepEqual(page.faults, []);
        // And if a script of the page tried, the browser would refuse.
        const refused = await page.evaluate(() => {
            try {
                document.body.innerHTML = "<b>made</b>";
                return null;
            } catch (error) {
                return error.name;
            }
        });
        assert.equal(refused, "TypeError");
    },

    "a wrong token is told, the right one is kept by the tab only and can be forgotten": async ({ relay, visit }) => {
        const page = await visit();
        for (const wrong of ["wrong", "schlüssel", "词"]) {
            await page.getByLabel("Admin token").fill(wrong);
            await page.getByRole("button", { name: "Continue" }).click();
            await says(page, "#token-error", "The relay does not take this token.");
            assert.ok(await page.locator("#app").isHidden());
            await page.locator("#token-error").evaluate((error) => (error.textContent = ""));
        }
        await signIn(page, relay);
        const kept = () => page.evaluate(() => [Object.values(sessionStorage), Object.values(localStorage), document.cookie]);
        assert.deepEqual(await kept(), [[relay.token], [], ""]);
        assert.equal(page.url(), relay.page);
        await page.reload();
        await says(page, "#instance", relay.relayInstanceId);
        await page.getByRole("button", { name: "Forget token" }).click();
        assert.deepEqual(await kept(), [[], [], ""]);
        assert.ok(await page.locator("#app").isHidden());
        await page.reload();
        await page.getByLabel("Admin token").waitFor();
        assert.ok(await page.locator("#app").isHidden());
    },

    "a token that the relay takes no more leads back to the question": async ({ relay, open }) => {
        const page = await open();
        await relay.stop();
        await relay.restart("--admin-token", "another-admin-token-of-32-characters");
        await says(page, "#token-error", "The relay does not take the token any more.");
        assert.ok(await page.locator("#app").isHidden());
    },

    "while the process is away the page tries again, and charts of the next one start anew": async ({ relay, open }) => {
        const page = await open();
        const desktop = await relay.desktop(randomUUID());
        const phone = await relay.phone(desktop);
        await says(page, "#chart-registrations .foot", /^2 accepted/);
        for (let number = 0; number < 20; number += 1) await phone.call();
        await says(page, "#chart-requests .foot", "20 ended in 5 min");
        await relay.stop();
        await says(page, "#lost", /^Connection lost; trying again\. It was last heard \d+ s ago\.$/);
        await says(page, "#phase", "no answer");
        await relay.restart();
        await says(page, "#instance", relay.relayInstanceId);
        await page.locator("#lost").waitFor({ state: "hidden" });
        await says(page, "#chart-requests .foot", "0 ended in 5 min");
        assert.doesNotMatch(await page.locator("#charts").innerText(), /-\d/);
        await says(page, "#connections-count", "0 connected");
    },

    "a hidden tab asks nothing, and asks at once when it is seen again": async ({ relay, open }) => {
        const page = await open();
        await page.clock.install();
        await page.reload();
        await says(page, "#instance", relay.relayInstanceId);
        const setHidden = (hidden) =>
            page.evaluate((value) => {
                Object.defineProperty(document, "hidden", { value, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
            }, hidden);
        let asked = 0;
        await setHidden(true);
        page.on("request", () => (asked += 1));
        await page.clock.runFor(60_000);
        assert.equal(asked, 0);
        await Promise.all([page.waitForRequest(/status$/), page.waitForRequest(/connections$/), setHidden(false)]);
    },

    "thousands of connections stay quick: the first are shown, and how many there are": async ({ relay, visit }) => {
        const page = await visit();
        const connections = Array.from({ length: 5000 }, (_, index) => ({
            connectionId: randomUUID(),
            userId: randomUUID(),
            role: index % 2 === 0 ? "desktop" : "mobile",
            route: `route-${index}`,
            connectedAt: new Date(1.7e12 + index * 1000).toISOString(),
            lastInboundAt: new Date(1.7e12).toISOString(),
            queuedBytes: 0,
        }));
        await page.route("**/admin/connections", (route) => route.fulfill({ json: { connections } }));
        await signIn(page, relay);
        await says(page, "#connections-count", "5,000 connected, the first 200 are shown");
        assert.equal(await page.locator("#connections-body tr").count(), 200);
        await page.getByLabel("Search connections").fill("route-4999");
        await says(page, "#connections-count", "1 of 5,000 connected");
        await says(page, "#connections-body .route", "route-4999");
    },

    "storage that fails is told with what fails and since when": async ({ relay, visit }) => {
        const page = await visit();
        const status = await (await relay.call("GET", "/admin/status")).json();
        const failing = { storage: "unavailable", failingSince: { statuses: "2026-09-12T12:00:00.000Z" }, unwrittenStatuses: 3 };
        await page.route("**/admin/status", (route) => route.fulfill({ json: { ...status, ...failing } }));
        await signIn(page, relay);
        await says(page, "#storage-banner", /^Storage does not answer: statuses since 2026-09-12T12:00:00\.000Z\..* 3 statuses wait to be written\.$/);
        await says(page, "#storage", "does not answer");
    },

    "another process of the same storage is named": async ({ relay, visit }) => {
        const page = await visit();
        const status = await (await relay.call("GET", "/admin/status")).json();
        const own = { self: true, host: "blue", pid: 7, version: "0.1.0", phase: "serving" };
        const other = { ...own, self: false, host: HOSTILE, pid: 8, phase: "draining" };
        let processes = [own, other];
        await page.route("**/admin/status", (route) => route.fulfill({ json: { ...status, processes } }));
        await signIn(page, relay);
        await page.locator("#others-banner").getByText(`Also on this storage: ${HOSTILE}, pid 8, 0.1.0, draining.`).waitFor();
        processes = [own];
        await page.locator("#others-banner").waitFor({ state: "hidden" });
        assert.deepEqual(page.faults, []);
    },

    "the log filter is shown and replaced, and a bad one is told": async ({ relay, open }) => {
        const page = await open();
        const input = page.getByLabel("Log filter");
        const { filter } = await (await relay.call("GET", "/admin/log")).json();
        await page.waitForFunction((expected) => document.getElementById("log-filter").value === expected, filter);
        await input.fill("info,relay_actors=debug");
        await page.getByRole("button", { name: "Apply" }).click();
        await says(page, "#log-said", /^In use/);
        assert.deepEqual(await (await relay.call("GET", "/admin/log")).json(), { filter: "info,relay_actors=debug" });
        await input.fill("info,=");
        await page.getByRole("button", { name: "Apply" }).click();
        await page.locator("#log-said.error").waitFor();
        assert.deepEqual(await (await relay.call("GET", "/admin/log")).json(), { filter: "info,relay_actors=debug" });
    },
});
