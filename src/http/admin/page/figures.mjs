// What the charts show, out of what `/metrics` says: pure, without a clock and without a page, so that tests import it too.

/** How far the charts go back, in milliseconds. */
export const WINDOW_MS = 5 * 60 * 1000;
/** Rates and quantiles are of this long, in milliseconds: long enough to be calm, short enough to follow. */
export const SPAN_MS = 5000;
/** Behind a longer silence, in milliseconds, a line is broken instead of drawn through what nobody saw. */
export const GAP_MS = 10000;

const SERIES = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-z]+)="([^"]*)"/g;
const ACCEPTED = new Set(["registered", "resumed"]);

/** The series of a text in the format of Prometheus, as the relay writes it: `{name, labels, value}` each. */
export function parse(text) {
    const series = [];
    for (const line of text.split("\n")) {
        const found = SERIES.exec(line);
        if (found === null) continue;
        const [, name, labels = "", value] = found;
        series.push({ name, labels: Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, word]) => [key, word])), value: Number(value) });
    }
    return series;
}

/**
 * One reading: `counters` only grow while a process lives, `refusals` are by reason, `buckets` has how many requests took up to each
 * bound in seconds, and `outbound` are bytes.
 */
export function read(text) {
    const counters = { requests: 0, delivered: 0, undelivered: 0, accepted: 0, turnedAway: 0, refusals: 0 };
    const refusals = new Map();
    const buckets = new Map();
    let outbound = 0;
    for (const { name, labels, value } of parse(text)) {
        switch (name) {
            case "relay_rpc_requests_total":
                counters.requests += value;
                break;
            case "relay_event_frames_total":
                counters[labels.fate === "delivered" ? "delivered" : "undelivered"] += value;
                break;
            case "relay_registrations_total":
                counters[ACCEPTED.has(labels.outcome) ? "accepted" : "turnedAway"] += value;
                break;
            case "relay_refusals_total":
                counters.refusals += value;
                refusals.set(labels.reason, value);
                break;
            case "relay_rpc_duration_seconds_bucket": {
                const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
                buckets.set(bound, (buckets.get(bound) ?? 0) + value);
                break;
            }
            case "relay_outbound_bytes":
                outbound = value;
                break;
        }
    }
    return { counters, refusals, buckets, outbound };
}

/**
 * The quantile `q` of a distribution, in seconds: within a bucket it is taken to be even, and behind the last bound it is that bound.
 * Null without requests.
 */
export function quantile(q, buckets) {
    const bounds = [...buckets.keys()].sort((a, b) => a - b);
    const total = buckets.get(bounds.at(-1)) ?? 0;
    if (total === 0) return null;
    const rank = q * total;
    let below = { bound: 0, count: 0 };
    for (const bound of bounds) {
        const count = buckets.get(bound);
        if (count >= rank && count > below.count) {
            if (bound === Infinity) return below.bound;
            return below.bound + ((bound - below.bound) * (rank - below.count)) / (count - below.count);
        }
        below = { bound, count };
    }
    return below.bound;
}

/**
 * The readings of the last minutes of one process, as points for charts. A point is `{at, values}`; `values` is null where a line must
 * break: at the first reading, behind a gap, and where a counter fell, since another process answered.
 */
export class History {
    points = [];
    #readings = [];

    /** Takes the reading of the time `at`, in milliseconds of any clock that does not jump. */
    push(at, reading) {
        const last = this.#readings.at(-1);
        const follows = last !== undefined && at - last.at <= GAP_MS && isLater(reading, last.reading);
        this.#readings.push({ at, reading, follows });
        const values = follows ? this.#values() : null;
        this.points.push({ at, values });
        while (this.points[0].at < at - WINDOW_MS) {
            this.points.shift();
            this.#readings.shift();
        }
    }

    /** Forgets everything: another process has other counters. */
    clear() {
        this.points = [];
        this.#readings = [];
    }

    /** How much a counter grew within the window. */
    total(counter) {
        return this.#sum((now, before) => now.counters[counter] - before.counters[counter]);
    }

    /** The most frequent reason for refusals within the window, and how many it had. Null without refusals. */
    mainRefusal() {
        let most = null;
        for (const reason of this.#readings.at(-1)?.reading.refusals.keys() ?? []) {
            const count = this.#sum((now, before) => now.refusals.get(reason) - (before.refusals.get(reason) ?? 0));
            if (count > (most?.count ?? 0)) most = { reason, count };
        }
        return most;
    }

    #sum(grown) {
        let sum = 0;
        this.#readings.forEach(({ reading, follows }, index) => {
            if (follows && index > 0) sum += grown(reading, this.#readings[index - 1].reading);
        });
        return sum;
    }

    /** Of the newest reading, against the oldest one that it follows and that is not older than the span. */
    #values() {
        const newest = this.#readings.at(-1);
        let index = this.#readings.length - 1;
        while (this.#readings[index].follows && index > 0 && newest.at - this.#readings[index - 1].at <= SPAN_MS) index -= 1;
        // With readings further apart than the span, the one before is all there is.
        const base = this.#readings[Math.min(index, this.#readings.length - 2)];
        const seconds = (newest.at - base.at) / 1000;
        const grown = Object.entries(newest.reading.counters).map(([name, now]) => [name, (now - base.reading.counters[name]) / seconds]);
        const buckets = new Map([...newest.reading.buckets].map(([bound, now]) => [bound, now - (base.reading.buckets.get(bound) ?? 0)]));
        return {
            ...Object.fromEntries(grown),
            p50: quantile(0.5, buckets),
            p99: quantile(0.99, buckets),
            outbound: newest.reading.outbound,
        };
    }
}

/** Whether this reading can be of the process of the one before: no counter fell. */
function isLater(reading, before) {
    return Object.entries(before.counters).every(([name, count]) => reading.counters[name] >= count);
}
