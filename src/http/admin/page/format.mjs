// Figures as operators read them. Each text has its unit; what there is no value for is a dash.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const NOTHING = "–";

/** A number of things. */
export function count(number) {
    return whole.format(number);
}

/** Something per second. */
export function rate(perSecond) {
    if (perSecond === null) return NOTHING;
    if (perSecond === 0) return "0/s";
    if (perSecond < 0.1) return "<0.1/s";
    return `${shortest(perSecond)}/s`;
}

/** How long something took, in seconds. */
export function latency(seconds) {
    if (seconds === null) return NOTHING;
    if (seconds < 0.001) return "<1 ms";
    if (seconds < 1) return `${shortest(seconds * 1000)} ms`;
    return seconds < 60 ? `${shortest(seconds)} s` : `${shortest(seconds / 60)} min`;
}

/** Memory. */
export function bytes(number) {
    if (number === null) return NOTHING;
    const units = ["B", "KiB", "MiB", "GiB"];
    let index = 0;
    while (number >= 1024 && index < units.length - 1) {
        number /= 1024;
        index += 1;
    }
    return `${index === 0 ? whole.format(number) : shortest(number)} ${units[index]}`;
}

/** How long something has lasted, in milliseconds: its two largest units. */
export function age(milliseconds) {
    const seconds = Math.max(0, Math.floor(milliseconds / 1000));
    const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
    if (minutes === 0) return `${seconds} s`;
    if (hours === 0) return `${minutes} min ${seconds % 60} s`;
    return days === 0 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

function shortest(number) {
    return (number < 9.95 && !Number.isInteger(number) ? tenths : whole).format(number);
}
