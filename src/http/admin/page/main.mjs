// The page: asks for the token, asks the relay every second while somebody looks, and shows what it says.
//
// Whatever comes from the relay goes in as text. The page's policy has the browser refuse anything else.

import { Chart, powerOfTwo, roundUp } from "./charts.mjs";
import { ConnectionTable } from "./connections.mjs";
import { DrainPanel } from "./drain.mjs";
import { History, read } from "./figures.mjs";
import { age, bytes, count, latency, rate } from "./format.mjs";
import { Relay, Unreachable, WrongToken } from "./relay.mjs";

/** Between two looks at status and metrics, in milliseconds; and while a drain goes on, which is often over in a second or two. */
const POLL_MS = 1000;
const POLL_DRAIN_MS = 200;
/** Between two lists of connections, in milliseconds, at least; and at least this many times what getting and showing one took. */
const LIST_MS = 2000;
const LIST_SHARE = 20;
/** Where this tab keeps the token, until it is closed. */
const TOKEN_KEY = "relay-admin-token";

const STORAGE = {
    ok: "works",
    failing: "answers, but fails in part",
    unavailable: "does not answer",
};

const find = (id) => document.getElementById(id);
const set = (id, text) => (find(id).textContent = text);

const history = new History();
const inFiveMinutes = (counter, what) => (of) => `${count(of.total(counter))} ${what} in 5 min`;
const perSecond = { scale: roundUp, least: 1, format: rate };
const charts = [
    { id: "requests", title: "Requests", series: [{ key: "requests", label: "ended" }], foot: inFiveMinutes("requests", "ended"), ...perSecond },
    {
        id: "events",
        title: "Event frames",
        series: [
            { key: "delivered", label: "delivered" },
            { key: "undelivered", label: "not delivered" },
        ],
        foot: inFiveMinutes("delivered", "delivered"),
        ...perSecond,
    },
    {
        id: "latency",
        title: "Answer time",
        series: [
            { key: "p50", label: "p50" },
            { key: "p99", label: "p99" },
        ],
        foot: () => "network and desktop, not the relay",
        scale: roundUp,
        least: 0.01,
        format: latency,
    },
    {
        id: "registrations",
        title: "Registrations",
        series: [
            { key: "accepted", label: "accepted" },
            { key: "turnedAway", label: "refused" },
        ],
        foot: (of) => `${count(of.total("accepted"))} accepted, ${count(of.total("turnedAway"))} refused in 5 min`,
        ...perSecond,
    },
    { id: "refusals", title: "Refused requests", series: [{ key: "refusals", label: "refused" }], foot: tellRefusals, ...perSecond },
    {
        id: "outbound",
        title: "Waiting to be sent",
        series: [{ key: "outbound", label: "queued" }],
        foot: () => "in all outbound lanes",
        scale: powerOfTwo,
        least: 1024,
        format: bytes,
    },
].map((options) => new Chart(find("charts"), options));

const drain = new DrainPanel(async () => {
    const progress = await relay.drain();
    // It may be over before the next look is due.
    setTimeout(poll, 0);
    return progress;
});
const connections = new ConnectionTable(async (id) => {
    await relay.close(id);
    setTimeout(list, 0);
});

/** Null while there is no token. */
let relay = null;
let instance = null;
/** When the relay last answered, on the clock of `performance`. */
let heardAt = null;
/** What the relay's clock is ahead of this one, in milliseconds. */
let clockAhead = 0;
let pollTimer = null;
let listTimer = null;
/** Counts looks and lists: an answer counts only if nothing was asked since, and nobody has left. */
let polls = 0;
let lists = 0;

find("token-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = find("token").value.trim();
    set("token-error", "");
    try {
        await new Relay(token).status();
    } catch (error) {
        set("token-error", error.message);
        find("token").select();
        return;
    }
    sessionStorage.setItem(TOKEN_KEY, token);
    enter(token);
});

find("forget").addEventListener("click", () => leave(""));

find("log-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const filter = find("log-filter").value.trim();
    try {
        await relay.setLogFilter(filter);
        say("In use from the next line on.", false);
    } catch (error) {
        say(error.message, true);
    }
    function say(text, isError) {
        set("log-said", text);
        find("log-said").classList.toggle("error", isError);
    }
});

// Nobody looks at a hidden tab, and the relay has other work.
document.addEventListener("visibilitychange", () => {
    stop();
    start();
});

const kept = sessionStorage.getItem(TOKEN_KEY);
if (kept === null) leave("");
else enter(kept);

function enter(token) {
    relay = new Relay(token);
    find("token").value = "";
    find("gate").hidden = true;
    find("app").hidden = false;
    start();
}

/** Back to the question for the token, which is forgotten, as is all that was shown. */
function leave(why) {
    stop();
    sessionStorage.removeItem(TOKEN_KEY);
    relay = null;
    connections.show([], 0);
    begin(null);
    if (find("drain-dialog").open) find("drain-dialog").close();
    find("app").hidden = true;
    find("gate").hidden = false;
    set("token-error", why);
    find("token").focus();
}

function start() {
    poll();
    list();
}

function stop() {
    clearTimeout(pollTimer);
    clearTimeout(listTimer);
    polls += 1;
    lists += 1;
}

/** One look at status and metrics, and the next one behind it. */
async function poll() {
    if (relay === null || document.hidden) return;
    polls += 1;
    const turn = polls;
    clearTimeout(pollTimer);
    try {
        const [status, metrics] = await Promise.all([relay.status(), relay.metrics()]);
        if (turn !== polls) return;
        heardAt = performance.now();
        showStatus(status);
        history.push(heardAt, read(metrics));
        for (const chart of charts) chart.draw(history, heardAt);
        find("lost").hidden = true;
        find("app").classList.remove("stale");
    } catch (error) {
        if (turn !== polls) return;
        if (error instanceof WrongToken) return leave("The relay does not take the token any more.");
        showLost(error);
    }
    pollTimer = setTimeout(poll, drain.isMoving ? POLL_DRAIN_MS : POLL_MS);
}

/** One list of connections, and the next one behind it. A list that takes long is asked for less often. */
async function list() {
    if (relay === null || document.hidden) return;
    lists += 1;
    const turn = lists;
    clearTimeout(listTimer);
    const begun = performance.now();
    try {
        const listed = await relay.connections();
        if (turn !== lists) return;
        connections.show(listed, Date.now() + clockAhead);
    } catch (error) {
        if (turn !== lists) return;
        // The look at the status says that nobody answers.
        if (!(error instanceof Unreachable)) set("connections-count", error.message);
    }
    listTimer = setTimeout(list, Math.max(LIST_MS, LIST_SHARE * (performance.now() - begun)));
}

/** Begins anew with another process. */
function begin(relayInstanceId) {
    instance = relayInstanceId;
    history.clear();
    drain.reset();
}

function showStatus(status) {
    if (status.relayInstanceId !== instance) {
        const isAnother = instance !== null;
        begin(status.relayInstanceId);
        if (isAnother) {
            set("announcements", "Another process answers. The charts start anew.");
            list();
        }
        showLogFilter();
    }
    clockAhead = Date.parse(status.startedAt) + status.uptimeMs - Date.now();
    const { phase } = status.drain;
    set("phase", phase);
    find("phase").className = `pill ${phase === "serving" ? "good" : "leaving"}`;
    drain.show(status.drain);
    set("instance", status.relayInstanceId);
    set("version", status.version);
    set("uptime", age(status.uptimeMs));
    set("about", `${status.version}, up for ${age(status.uptimeMs)}`);
    set("storage", STORAGE[status.storage] ?? status.storage);
    find("storage").className = status.storage === "ok" ? "good" : "bad";
    set("unwritten", count(status.unwrittenStatuses));
    set("desktops", count(status.sockets.desktop));
    set("phones", count(status.sockets.mobile));
    set("unregistered", count(status.sockets.unregistered));
    set("accounts", count(status.accounts));
    set("pending", count(status.pending));
    set("leases", count(status.leases));
    const others = (status.processes ?? []).filter((process) => !process.self);
    find("others-banner").hidden = others.length === 0;
    set("others-banner", tellOthers(others));
    find("storage-banner").hidden = status.storage === "ok";
    set("storage-banner", tellStorage(status));
}

function tellOthers(others) {
    const named = others.map(({ host, pid, version, phase }) => `${host}, pid ${pid}, ${version}, ${phase}`);
    return `Also on this storage: ${named.join("; ")}. Two that serve are for a deploy only: devices of one do not reach those of the other.`;
}

function tellStorage({ storage, failingSince = {}, unwrittenStatuses }) {
    const failing = Object.entries(failingSince).map(([statement, since]) => `${statement} since ${since}`);
    const what = failing.length > 0 ? `: ${failing.join(", ")}` : "";
    const waiting = unwrittenStatuses > 0 ? ` ${count(unwrittenStatuses)} statuses wait to be written.` : "";
    return `Storage ${STORAGE[storage] ?? storage}${what}. Connected devices go on; registrations may be refused for now.${waiting}`;
}

function showLost(error) {
    const since = heardAt === null ? "" : ` It was last heard ${age(performance.now() - heardAt)} ago.`;
    const ended = drain.isDrained && error instanceof Unreachable;
    const what = ended ? "The drained process has ended, or cannot be reached" : error instanceof Unreachable ? "Connection lost" : error.message;
    set("lost", `${what}; trying again.${since}`);
    find("lost").hidden = false;
    find("app").classList.add("stale");
    set("phase", "no answer");
    find("phase").className = "pill";
}

async function showLogFilter() {
    try {
        find("log-filter").value = await relay.logFilter();
    } catch {
        // It stays empty; the look at the status says why.
    }
}

function tellRefusals(of) {
    const most = of.mainRefusal();
    return most === null ? "none in 5 min" : `${count(of.total("refusals"))} in 5 min, mostly ${most.reason}`;
}
