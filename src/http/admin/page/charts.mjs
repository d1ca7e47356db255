// A small chart of the last minutes: a title, the values now, a line for each series, and what it comes to.

import { WINDOW_MS } from "./figures.mjs";
import { age } from "./format.mjs";

const SVG = "http://www.w3.org/2000/svg";
// Units of the drawing; the page stretches it.
const WIDTH = 300;
const HEIGHT = 72;

/** The smallest 1, 2 or 5 times a power of ten that is not below: where a scale ends. */
export function roundUp(number) {
    const power = 10 ** Math.floor(Math.log10(number));
    return [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= number * (1 - 1e-9));
}

/** The smallest power of two that is not below, for bytes. */
export function powerOfTwo(number) {
    return 2 ** Math.ceil(Math.log2(number));
}

/**
 * One chart. `series` are `{key, label}`, the first one is drawn with an area; `format` makes text of a value; a scale ends at `scale` of
 * the largest value, and at `least` when all are small; `foot` says what the window comes to.
 */
export class Chart {
    #options;
    #card;
    #values;
    #lines;
    #area;
    #scale;
    #foot;
    #cursor;
    #drawing;
    /** Where the pointer is, from 0 to 1, or null. */
    #pointed = null;
    #points = [];
    #now = 0;

    constructor(parent, options) {
        this.#options = options;
        const card = document.getElementById("chart-template").content.firstElementChild.cloneNode(true);
        const find = (part) => card.querySelector(`.${part}`);
        this.#card = card;
        card.id = `chart-${options.id}`;
        find("title").textContent = options.title;
        card.classList.toggle("single", options.series.length === 1);
        this.#values = options.series.map(({ label }, index) => addValue(find("values"), label, index));
        this.#scale = find("scale");
        this.#foot = find("foot");
        this.#drawing = find("drawing");
        this.#drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
        this.#area = addShape(this.#drawing, "path", "area");
        // The first series lies on top.
        this.#lines = options.series.map((_, index) => addShape(this.#drawing, "path", `line series-${index}`));
        this.#lines.toReversed().forEach((line) => this.#drawing.append(line));
        this.#cursor = addShape(this.#drawing, "line", "cursor");
        this.#cursor.setAttribute("y2", HEIGHT);
        this.#drawing.addEventListener("pointermove", (event) => {
            const box = this.#drawing.getBoundingClientRect();
            this.#pointed = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
            this.#tell();
        });
        this.#drawing.addEventListener("pointerleave", () => {
            this.#pointed = null;
            this.#tell();
        });
        parent.append(card);
    }

    /** Shows this history as it is at the time `now`. */
    draw(history, now) {
        const { series, scale, least, format, foot } = this.#options;
        this.#points = history.points;
        this.#now = now;
        const all = this.#points.flatMap(({ values }) => (values === null ? [] : series.map(({ key }) => values[key] ?? 0)));
        const top = scale(Math.max(least, ...all));
        series.forEach(({ key }, index) => this.#lines[index].setAttribute("d", line(this.#runs(key, top))));
        this.#area.setAttribute("d", area(this.#runs(series[0].key, top)));
        this.#scale.textContent = format(top);
        this.#foot.textContent = foot(history);
        this.#tell();
    }

    /** The unbroken parts of a series, as lists of `[x, y]`. */
    #runs(key, top) {
        const runs = [];
        let run = [];
        for (const { at, values } of this.#points) {
            const value = values?.[key] ?? null;
            if (value === null) {
                run = [];
                continue;
            }
            if (run.length === 0) runs.push(run);
            run.push([WIDTH * this.#place(at), HEIGHT - 1 - (HEIGHT - 2) * (value / top)]);
        }
        return runs;
    }

    /** Where a time is, from 0 to 1. */
    #place(at) {
        return 1 - (this.#now - at) / WINDOW_MS;
    }

    /** The values that the pointer is at, otherwise the newest. */
    #tell() {
        const { series, format, title } = this.#options;
        const point = this.#pointed === null ? this.#points.at(-1) : this.#nearest();
        series.forEach(({ key }, index) => (this.#values[index].textContent = format(point?.values?.[key] ?? null)));
        const isPointed = this.#pointed !== null && point !== undefined;
        this.#card.classList.toggle("pointed", isPointed);
        this.#card.querySelector(".ago").textContent = isPointed ? `${age(this.#now - point.at)} ago` : "";
        if (isPointed) ["x1", "x2"].forEach((name) => this.#cursor.setAttribute(name, WIDTH * this.#place(point.at)));
        const now = series.map(({ key, label }) => `${label} ${format(this.#points.at(-1)?.values?.[key] ?? null)}`);
        this.#drawing.setAttribute("aria-label", `${title}, last 5 minutes. Now: ${now.join(", ")}.`);
    }

    #nearest() {
        const distance = ({ at }) => Math.abs(this.#place(at) - this.#pointed);
        return this.#points.reduce((best, point) => (distance(point) < distance(best) ? point : best), this.#points[0]);
    }
}

function addValue(parent, label, index) {
    const value = document.createElement("div");
    value.className = `value series-${index}`;
    const [name, number] = ["dt", "dd"].map((tag) => document.createElement(tag));
    name.textContent = label;
    value.append(name, number);
    parent.append(value);
    return number;
}

function addShape(parent, tag, names) {
    const shape = document.createElementNS(SVG, tag);
    shape.setAttribute("class", names);
    parent.append(shape);
    return shape;
}

function line(runs) {
    // A run of one point is a dot, which a line to itself with a round cap draws.
    const closed = (run) => (run.length === 1 ? [...run, ...run] : run);
    return runs.map((run) => `M${closed(run).map(pair).join("L")}`).join("");
}

function area(runs) {
    return runs.map((run) => `M${pair([run[0][0], HEIGHT])}L${run.map(pair).join("L")}L${pair([run.at(-1)[0], HEIGHT])}Z`).join("");
}

function pair([x, y]) {
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
}
