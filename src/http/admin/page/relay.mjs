// The calls of the admin listener that the page makes. Paths are relative to the page's own.

/** An answer that takes longer, in milliseconds, is no answer. Asking storage alone may take the relay 2 s. */
const TIMEOUT_MS = 5000;

/** The relay does not take the token. */
export class WrongToken extends Error {
    constructor() {
        super("The relay does not take this token.");
    }
}
/** Nobody answers. */
export class Unreachable extends Error {
    constructor() {
        super("The relay does not answer.");
    }
}
/** The relay answers that it will not; the message is its own. */
export class Refused extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

/** A relay, for those who have its admin token. Each call may end with one of the errors above. */
export class Relay {
    #token;

    constructor(token) {
        this.#token = token;
    }

    async status() {
        return (await this.#call("GET", "status")).json();
    }

    async metrics() {
        return (await this.#call("GET", "../metrics")).text();
    }

    async connections() {
        return (await (await this.#call("GET", "connections")).json()).connections;
    }

    async close(connectionId) {
        await this.#call("POST", `connections/${encodeURIComponent(connectionId)}/close`);
    }

    async drain() {
        return (await this.#call("POST", "drain")).json();
    }

    async logFilter() {
        return (await (await this.#call("GET", "log")).json()).filter;
    }

    async setLogFilter(filter) {
        await this.#call("PUT", "log", JSON.stringify({ filter }));
    }

    async #call(method, path, body) {
        let headers;
        try {
            headers = new Headers({ Authorization: `Bearer ${this.#token}` });
        } catch {
            // What cannot stand in a header is no token.
            throw new WrongToken();
        }
        let response;
        try {
            const signal = AbortSignal.timeout(TIMEOUT_MS);
            response = await fetch(path, { method, headers, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
        } catch {
            throw new Unreachable();
        }
        if (response.status === 401) throw new WrongToken();
        if (!response.ok) throw new Refused(response.status, await reason(response));
        return response;
    }
}

async function reason(response) {
    try {
        return (await response.json()).error.message;
    } catch {
        return `The relay answered ${response.status}.`;
    }
}
