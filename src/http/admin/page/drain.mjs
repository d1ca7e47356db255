// Having the process leave: what is said before, and how far it is afterwards.

import { age, count } from "./format.mjs";

const PHASES = ["draining", "closing", "drained"];
const ANNOUNCED = {
    draining: "The drain has begun. Work in progress is finished.",
    closing: "Sockets are being closed.",
    drained: "Drained. Every socket is closed.",
};

/** The button, its dialog, and the panel of progress. `begin` starts the drain and gives its first progress. */
export class DrainPanel {
    #find = (id) => document.getElementById(id);
    /** The most sockets that were seen, which the bar is of. */
    #total = 0;
    #phase = "serving";

    constructor(begin) {
        const [open, dialog, confirm, cancel, error] = ["drain", "drain-dialog", "drain-confirm", "drain-cancel", "drain-error"].map(this.#find);
        open.addEventListener("click", () => {
            error.textContent = "";
            confirm.disabled = false;
            dialog.showModal();
            cancel.focus();
        });
        cancel.addEventListener("click", () => dialog.close());
        confirm.addEventListener("click", async () => {
            confirm.disabled = true;
            error.textContent = "";
            try {
                this.show(await begin());
                dialog.close();
            } catch (failed) {
                error.textContent = `It was not started. ${failed.message}`;
                confirm.disabled = false;
            }
        });
    }

    /** Forgets the process that was watched. */
    reset() {
        this.#total = 0;
        this.#phase = "serving";
    }

    /** Whether a drain goes on, so that it is worth looking more often. */
    get isMoving() {
        return this.#phase === "draining" || this.#phase === "closing";
    }

    /** Whether it is over. */
    get isDrained() {
        return this.#phase === "drained";
    }

    /** Shows this progress, as `/admin/status` and `/admin/drain` tell it. */
    show({ phase, inFlight, socketsLeft, elapsedMs }) {
        this.#total = Math.max(this.#total, socketsLeft);
        const began = phase !== "serving";
        this.#find("drain").hidden = began;
        this.#find("drain-panel").hidden = !began;
        for (const place of document.querySelectorAll(".drain-sockets")) place.textContent = sockets(this.#total);
        if (!began) return;
        if (phase !== this.#phase) this.#find("announcements").textContent = ANNOUNCED[phase] ?? phase;
        this.#phase = phase;
        const reached = PHASES.indexOf(phase);
        document.querySelectorAll("#drain-steps li").forEach((step, index) => {
            step.classList.toggle("done", index < reached || phase === "drained");
            if (index === reached) step.setAttribute("aria-current", "step");
            else step.removeAttribute("aria-current");
        });
        const closed = this.#total - socketsLeft;
        const bar = this.#find("drain-bar");
        bar.max = Math.max(1, this.#total);
        bar.value = phase === "drained" ? bar.max : closed;
        this.#find("drain-in-flight").textContent = count(inFlight);
        this.#find("drain-left").textContent = count(socketsLeft);
        this.#find("drain-closed").textContent = `${count(closed)} of ${sockets(this.#total)} closed`;
        this.#find("drain-elapsed").textContent = elapsedMs < 1000 ? `${elapsedMs} ms` : age(elapsedMs);
        this.#find("drain-next").hidden = phase !== "drained";
    }
}

function sockets(number) {
    return number === 1 ? "1 socket" : `${count(number)} sockets`;
}
