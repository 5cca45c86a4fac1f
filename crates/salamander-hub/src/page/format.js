// Numbers, times and states as people read them.

export function number(value, digits = 5) {
  if (value === null || value === undefined) return "\u2013";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(digits - 2);
  return String(Number(value.toPrecision(digits)));
}

export function time(ms) {
  if (!ms) return "\u2013";
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined || !(ms >= 0)) return "\u2013";
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "\u2013";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000) return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} TB`;
}

/// Hyperparameters by their path: {a: {b: 1}} is a.b = 1.
export function flat(tree, path = "", into = {}) {
  for (const [key, value] of Object.entries(tree ?? {})) {
    const name = path ? `${path}.${key}` : key;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) flat(value, name, into);
    else into[name] = Array.isArray(value) ? JSON.stringify(value) : value;
  }
  return into;
}

/// Control codes of terminals are no text.
export function plain(text) {
  return text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/[\u0000-\u0008\u000b-\u001f]/g, "\u00b7");
}

/// A value as a cell of CSV. A spreadsheet must not take a name for a formula.
export function csvCell(value) {
  const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join(" ") : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
