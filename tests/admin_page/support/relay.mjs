// A relay of one's own, the real binary, and clients of it over real sockets.

import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import WebSocket from "ws";

const BINARY = process.env.RELAY_BINARY ?? fileURLToPath(new URL("../../../target/debug/relay", import.meta.url));

// Those that a test left behind which ran out of time.
const running = new Set();
process.once("exit", () => running.forEach((relay) => relay.kill("SIGKILL")));

/** A running relay. It ends with `stop`, and its files with `remove`. */
export class Relay {
    #directory;
    #process;
    #tokens = new Map();

    /** Starts one, with these arguments of `relay serve` besides. */
    static async start(...args) {
        const relay = new Relay();
        relay.#directory = mkdtempSync(join(tmpdir(), "relay-admin-page-"));
        await relay.#serve("127.0.0.1:0", args);
        return relay;
    }

    /** Starts another process of the same data directory and admin address. */
    async restart(...args) {
        await this.#serve(this.admin, args);
    }

    async #serve(adminListen, args) {
        const [data, ready] = ["data", "ready.json"].map((name) => join(this.#directory, name));
        const flags = ["--listen", "127.0.0.1:0", "--admin-listen", adminListen, "--data-dir", data, "--ready-file", ready, ...args];
        this.#process = spawn(BINARY, ["serve", "--log-format", "json", ...flags], { stdio: ["ignore", "ignore", "pipe"] });
        running.add(this.#process);
        const lines = createInterface({ input: this.#process.stderr });
        const log = [];
        await new Promise((resolve, reject) => {
            lines.on("line", (line) => {
                log.push(line);
                if (line.includes('"serving"')) resolve();
            });
            this.#process.once("exit", () => reject(new Error(`the relay ended:\n${log.join("\n")}`)));
        });
        Object.assign(this, JSON.parse(readFileSync(ready)));
        this.token = readFileSync(join(data, "admin-token"), "utf8").trim();
    }

    /** The address of the page. */
    get page() {
        return `http://${this.admin}/admin/`;
    }

    /** Ends the process: at once, or as an operator does, behind its drain. */
    async stop(signal = "SIGKILL") {
        if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
        const exited = once(this.#process, "exit");
        this.#process.kill(signal);
        await exited;
        running.delete(this.#process);
    }

    async remove() {
        await this.stop();
        rmSync(this.#directory, { recursive: true });
    }

    /** A call of the admin listener. */
    async call(method, path, body) {
        const headers = { Authorization: `Bearer ${this.token}` };
        return fetch(`http://${this.admin}${path}`, { method, headers, body: body && JSON.stringify(body) });
    }

    /** A new device of this account. */
    async addDevice(user, role, deviceName) {
        const headers = { Authorization: `Bearer ${this.tokenOf(user)}`, "Content-Type": "application/json" };
        const body = JSON.stringify({ role, deviceName, platform: "linux", appVersion: "1.0" });
        const response = await fetch(`http://${this.public}/api/devices`, { method: "POST", headers, body });
        if (response.status !== 201) throw new Error(await response.text());
        return (await response.json()).deviceId;
    }

    /** A connected desktop of this account. */
    async desktop(user, deviceName = "desktop") {
        const device = await this.addDevice(user, "desktop", deviceName);
        return Client.register(this, user, { device, role: "desktop", deviceName });
    }

    /** A connected phone of a desktop's account, at that desktop. */
    async phone(desktop, deviceName = "phone") {
        const device = await this.addDevice(desktop.user, "mobile", deviceName);
        return Client.register(this, desktop.user, { device, role: "mobile", target: desktop.device, deviceName });
    }

    /** A token of this account. */
    tokenOf(user) {
        if (!this.#tokens.has(user)) {
            const data = join(this.#directory, "data");
            this.#tokens.set(user, execFileSync(BINARY, ["token", "--user", user, "--data-dir", data], { encoding: "utf8" }).trim());
        }
        return this.#tokens.get(user);
    }
}

/** A registered socket. A desktop answers each request, after `delay` milliseconds if it is given one. */
export class Client {
    #socket;
    #answers = new Map();
    delay = () => 0;
    /** What is done with each event. */
    onEvent = () => {};

    static async register(relay, user, { device, role, target, deviceName }) {
        const client = new Client();
        const headers = { Authorization: `Bearer ${relay.tokenOf(user)}`, "X-Client-Type": role };
        const socket = new WebSocket(`ws://${relay.public}/ws/device-link`, { headers });
        client.#socket = socket;
        Object.assign(client, { user, device, route: target === undefined ? device : `${device}::${target}` });
        // Resolves to the code of the close, whenever it comes.
        client.closed = new Promise((resolve) => socket.once("close", resolve));
        await once(socket, "open");
        const registered = new Promise((resolve) => (client.onRegistered = resolve));
        socket.on("message", (data) => client.#receive(JSON.parse(data)));
        const payload = { deviceId: device, relayProtocolVersion: "1.7", deviceName, targetDesktopDeviceId: target };
        client.send("register", payload);
        client.connectionId = (await registered).connectionId;
        return client;
    }

    #receive({ type, payload }) {
        if (type === "registered" || type === "resumed") this.onRegistered(payload);
        if (type === "rpc.request") {
            const answer = () => this.send("rpc.response", { clientId: payload.clientId, id: payload.id, result: {} });
            const delay = this.delay();
            if (delay === 0) answer();
            else if (delay !== null) setTimeout(answer, delay);
        }
        if (type === "rpc.response") {
            this.#answers.get(payload.id)?.(payload);
            this.#answers.delete(payload.id);
        }
        if (type === "event") this.onEvent(payload);
    }

    send(type, payload) {
        if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type, payload }));
    }

    /** A phone's request, and its answer. */
    call(method = "system.ping", params = {}) {
        const id = randomUUID();
        const answer = new Promise((resolve) => this.#answers.set(id, resolve));
        this.send("rpc.request", { id, method, params, traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" });
        return answer;
    }

    /** Whether the relay still answers over this socket. */
    async isAlive() {
        const pong = once(this.#socket, "pong").then(() => true);
        this.#socket.ping();
        return Promise.race([pong, this.closed.then(() => false)]);
    }

    /** Reads nothing any more, so that a close takes the relay its time. */
    freeze() {
        this.#socket._socket.pause();
    }

    end() {
        this.#socket.terminate();
    }
}
