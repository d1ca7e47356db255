// Who is connected: a table that is searched and sorted here, and whose rows can be closed.

import { age, bytes, count } from "./format.mjs";

/** Rows that are shown; with thousands of connections the page must stay quick. */
export const ROWS_MAX = 200;

const NUMBERS = new Set(["connectedAt", "lastInboundAt", "queuedBytes"]);

/** The connections that have every word of the search in their ids, route or role. */
export function search(connections, words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    if (wanted.length === 0) return connections;
    return connections.filter(({ connectionId, userId, role, route }) => {
        const text = `${role} ${role === "mobile" ? "phone" : ""} ${userId} ${route} ${connectionId}`.toLowerCase();
        return wanted.every((word) => text.includes(word));
    });
}

/** Sorted by a field, those that are alike by their id, so that rows keep their places. */
export function sort(connections, field, descending) {
    const sign = descending ? -1 : 1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return connections.toSorted((a, b) => sign * compare(a[field], b[field]) || compare(a.connectionId, b.connectionId));
}

/** The table. `close` closes a connection by its id. */
export class ConnectionTable {
    #close;
    #body = document.getElementById("connections-body");
    #search = document.getElementById("search");
    #rows = new Map();
    #connections = [];
    #field = "connectedAt";
    #descending = true;
    #now = 0;

    constructor(close) {
        this.#close = close;
        this.#search.addEventListener("input", () => this.#render());
        for (const header of document.querySelectorAll("#connections th[data-field]")) {
            header.querySelector("button").addEventListener("click", () => this.#sortBy(header.dataset.field));
        }
    }

    /** Shows these connections as they are at `now`, epoch milliseconds of the relay's clock. */
    show(connections, now) {
        this.#connections = connections;
        this.#now = now;
        this.#render();
    }

    #sortBy(field) {
        this.#descending = this.#field === field ? !this.#descending : NUMBERS.has(field);
        this.#field = field;
        for (const header of document.querySelectorAll("#connections th[data-field]")) {
            if (header.dataset.field === field) header.setAttribute("aria-sort", this.#descending ? "descending" : "ascending");
            else header.removeAttribute("aria-sort");
        }
        this.#render();
    }

    #render() {
        const found = search(this.#connections, this.#search.value);
        const shown = sort(found, this.#field, this.#descending).slice(0, ROWS_MAX);
        const ids = new Set(shown.map(({ connectionId }) => connectionId));
        for (const [id, row] of this.#rows) {
            if (ids.has(id)) continue;
            row.element.remove();
            this.#rows.delete(id);
        }
        // A row that moves in the document loses its focus, and one that is being asked about must not slip from under the pointer.
        const keepsPlaces = this.#body.querySelector(".asking") !== null || this.#body.contains(document.activeElement);
        let place = this.#body.firstElementChild;
        for (const connection of shown) {
            let row = this.#rows.get(connection.connectionId);
            if (row === undefined) {
                row = new Row(connection, this.#close);
                this.#rows.set(connection.connectionId, row);
                this.#body.insertBefore(row.element, keepsPlaces ? null : place);
            } else if (row.element === place) {
                place = place.nextElementSibling;
            } else if (!keepsPlaces) {
                this.#body.insertBefore(row.element, place);
            }
            row.update(connection, this.#now);
        }
        this.#tellHowMany(found.length, shown.length);
    }

    #tellHowMany(found, shown) {
        const all = this.#connections.length;
        const isSearching = this.#search.value.trim() !== "";
        let text = `${count(all)} connected`;
        if (isSearching) text = `${count(found)} of ${count(all)} connected`;
        if (shown < found) text += `, the first ${count(shown)} are shown`;
        document.getElementById("connections-count").textContent = text;
        const empty = document.getElementById("connections-empty");
        empty.hidden = shown > 0;
        empty.textContent = isSearching && all > 0 ? "Nothing that is connected has this in its role, account, route or id." : "Nobody is connected.";
    }
}

/** One connection. */
class Row {
    element = document.getElementById("row-template").content.firstElementChild.cloneNode(true);
    #find = (part) => this.element.querySelector(`.${part}`);
    #close;
    #id;

    constructor({ connectionId, userId, role, route }, close) {
        this.#close = close;
        this.#id = connectionId;
        this.element.dataset.connection = connectionId;
        this.element.title = `connection ${connectionId}`;
        const word = role === "mobile" ? "phone" : role;
        this.#find("role").textContent = word;
        this.#find("role").classList.add(role === "desktop" ? "desktop" : "mobile");
        this.#find("user").textContent = userId;
        // A phone's route is `phone::desktop`; the whole stays one text to select and copy.
        this.#find("route").textContent = route;
        this.#find("route").title = route;
        const ask = this.#find("ask");
        ask.setAttribute("aria-label", `Close ${word} ${route}`);
        ask.addEventListener("click", () => this.#ask());
        this.#find("keep").addEventListener("click", () => this.#keep());
        this.#find("confirm").addEventListener("click", () => this.#confirm());
        this.element.addEventListener("keydown", (event) => {
            if (event.key === "Escape" && this.element.classList.contains("asking")) this.#keep();
        });
    }

    update({ connectedAt, lastInboundAt, queuedBytes }, now) {
        this.#tellTime("connected", connectedAt, now, "");
        this.#tellTime("inbound", lastInboundAt, now, " ago");
        this.#find("queued").textContent = bytes(queuedBytes);
        this.#find("queued").classList.toggle("waits", queuedBytes > 0);
    }

    #tellTime(part, at, now, behind) {
        const time = this.#find(part);
        time.textContent = `${age(now - Date.parse(at))}${behind}`;
        time.title = at;
    }

    #ask() {
        this.element.classList.add("asking");
        this.#find("said").textContent = "";
        this.#find("keep").focus();
    }

    #keep() {
        this.element.classList.remove("asking");
        this.#find("ask").focus();
    }

    async #confirm() {
        const confirm = this.#find("confirm");
        confirm.disabled = true;
        let said = "closing…";
        try {
            await this.#close(this.#id);
        } catch (error) {
            // 404: it has ended meanwhile, as was wanted.
            if (error.status !== 404) said = `not closed. ${error.message}`;
        }
        confirm.disabled = false;
        this.element.classList.remove("asking");
        this.#find("said").textContent = said;
    }
}
