// What charts and tables are made of, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import { powerOfTwo, roundUp } from "../../src/http/admin/page/charts.mjs";
import { GAP_MS, History, parse, quantile, read, SPAN_MS, WINDOW_MS } from "../../src/http/admin/page/figures.mjs";
import { age, bytes, count, latency, rate } from "../../src/http/admin/page/format.mjs";

const SECOND = 1000;

/** A reading with this many requests, of which so many took up to 10 ms and the rest up to 100 ms. */
function reading(requests, { fast = requests, refusals = {}, outbound = 0 } = {}) {
    const counters = { requests, refusals: Object.values(refusals).reduce((sum, count) => sum + count, 0) };
    const buckets = new Map([
        [0.01, fast],
        [0.1, requests],
        [Infinity, requests],
    ]);
    return { counters, refusals: new Map(Object.entries(refusals)), buckets, outbound };
}

test("the text of metrics is read with its labels", () => {
    const text = '# HELP relay_a_total Help.\n# TYPE relay_a_total counter\nrelay_a_total{x="1",y="b c"} 7\nrelay_b 0.5\n';
    assert.deepEqual(parse(text), [
        { name: "relay_a_total", labels: { x: "1", y: "b c" }, value: 7 },
        { name: "relay_b", labels: {}, value: 0.5 },
    ]);
});

test("a reading sums series over their labels, and tells fates and outcomes apart", () => {
    const { counters, refusals, buckets, outbound } = read(`
relay_rpc_requests_total{class="run",outcome="result"} 3
relay_rpc_requests_total{class="load",outcome="expired"} 4
relay_event_frames_total{fate="delivered"} 10
relay_event_frames_total{fate="coalesced"} 1
relay_event_frames_total{fate="noLease"} 2
relay_registrations_total{outcome="registered"} 5
relay_registrations_total{outcome="resumed"} 6
relay_registrations_total{outcome="deviceNotFound"} 7
relay_refusals_total{reason="expired",code="-32012"} 8
relay_refusals_total{reason="desktopOffline",code="-32010"} 9
relay_rpc_duration_seconds_bucket{class="run",outcome="result",le="0.01"} 1
relay_rpc_duration_seconds_bucket{class="load",outcome="error",le="0.01"} 2
relay_rpc_duration_seconds_bucket{class="load",outcome="error",le="+Inf"} 4
relay_outbound_bytes 4096
relay_outbound_bytes_limit 1073741824
`);
    assert.deepEqual(counters, { requests: 7, delivered: 10, undelivered: 3, accepted: 11, turnedAway: 7, refusals: 17 });
    assert.deepEqual(Object.fromEntries(refusals), { expired: 8, desktopOffline: 9 });
    assert.deepEqual([...buckets], [[0.01, 3], [Infinity, 4]]);
    assert.equal(outbound, 4096);
});

test("a quantile lies within its bucket, as Prometheus has it", () => {
    const buckets = new Map([[0.1, 10], [0.2, 30], [Infinity, 30]]);
    assert.equal(quantile(0.5, buckets).toFixed(3), "0.125");
    assert.equal(quantile(0.2, buckets).toFixed(3), "0.060");
    assert.equal(quantile(1, buckets), 0.2);
    // Behind the last bound nobody knows.
    assert.equal(quantile(0.99, new Map([[0.1, 1], [Infinity, 10]])), 0.1);
    assert.equal(quantile(0.5, new Map([[0.1, 0], [Infinity, 0]])), null);
    assert.equal(quantile(0.5, new Map()), null);
});

test("a rate is over the span that ends at its point", () => {
    const history = new History();
    for (let second = 0; second <= 20; second += 1) history.push(second * SECOND, reading(second < 10 ? 0 : 50));
    const rates = history.points.map(({ values }) => values?.requests ?? null);
    assert.equal(rates[0], null);
    assert.deepEqual(rates.slice(8, 17), [0, 0, 10, 10, 10, 10, 10, 0, 0]);
    assert.equal(SPAN_MS, 5 * SECOND);
    assert.equal(history.total("requests"), 50);
});

test("a counter that fell breaks the line and is not a negative rate", () => {
    const history = new History();
    for (const [second, requests] of [[0, 100], [1, 110], [2, 3], [3, 5]]) history.push(second * SECOND, reading(requests));
    assert.deepEqual(history.points.map(({ values }) => values?.requests ?? null), [null, 10, null, 2]);
    assert.equal(history.total("requests"), 12);
});

test("behind a gap the line begins anew", () => {
    const history = new History();
    history.push(0, reading(0));
    history.push(GAP_MS, reading(10));
    history.push(2 * GAP_MS + 1, reading(1000));
    history.push(2 * GAP_MS + 1 + SECOND, reading(1002));
    assert.deepEqual(history.points.map(({ values }) => values?.requests ?? null), [null, 1, null, 2]);
});

test("what is older than the window is forgotten", () => {
    const history = new History();
    for (let at = 0; at <= 2 * WINDOW_MS; at += SECOND) history.push(at, reading(at / SECOND));
    assert.equal(history.points.length, WINDOW_MS / SECOND + 1);
    assert.equal(history.total("requests"), WINDOW_MS / SECOND);
    history.clear();
    assert.deepEqual([history.points, history.total("requests"), history.mainRefusal()], [[], 0, null]);
});

test("quantiles are of what was answered within the span, and none without answers", () => {
    const history = new History();
    history.push(0, reading(1000, { fast: 0 }));
    history.push(SECOND, reading(1100, { fast: 100 }));
    history.push(2 * SECOND, reading(1100, { fast: 100 }));
    history.push(8 * SECOND, reading(1100, { fast: 100 }));
    assert.deepEqual(history.points.map(({ values }) => values?.p50 ?? null), [null, 0.005, 0.005, null]);
});

test("the most frequent refusal of the window is named", () => {
    const history = new History();
    history.push(0, reading(0, { refusals: { expired: 500, desktopOffline: 0 } }));
    assert.equal(history.mainRefusal(), null);
    history.push(SECOND, reading(0, { refusals: { expired: 501, desktopOffline: 7 } }));
    assert.deepEqual(history.mainRefusal(), { reason: "desktopOffline", count: 7 });
});

test("a scale ends at a round number that is not below", () => {
    assert.deepEqual([0.011, 1, 1.01, 3, 5, 5.1, 99, 100, 101].map(roundUp), [0.02, 1, 2, 5, 5, 10, 100, 100, 200]);
    assert.deepEqual([1024, 1025, 3000].map(powerOfTwo), [1024, 2048, 4096]);
});

test("figures have their units", () => {
    assert.deepEqual([0, 1234567].map(count), ["0", "1,234,567"]);
    assert.deepEqual([null, 0, 0.04, 0.2, 3, 9.96, 1234.4].map(rate), ["–", "0/s", "<0.1/s", "0.2/s", "3/s", "10/s", "1,234/s"]);
    assert.deepEqual([null, 0.0004, 0.0024, 0.124, 2.44, 90].map(latency), ["–", "<1 ms", "2.4 ms", "124 ms", "2.4 s", "1.5 min"]);
    assert.deepEqual([null, 0, 1023, 1024, 1536, 67108864].map(bytes), ["–", "0 B", "1,023 B", "1 KiB", "1.5 KiB", "64 MiB"]);
    const ages = [-5, 999, 59_999, 61_000, 3_600_000, 90_000_000].map(age);
    assert.deepEqual(ages, ["0 s", "0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
});
