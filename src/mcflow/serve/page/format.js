// Labels of kinds, roles and states, and formatting of numbers and times.

export const KINDS = {
  continuous: "number",
  integer: "integer",
  datetime: "date or time",
  boolean: "true or false",
  category: "category",
  ordered: "ordered category",
  identifier: "identifier (not filled)",
  text: "free text (not filled)",
  constant: "constant",
  empty: "no observed value",
  other: "unsupported (not filled)",
};

export const ROLES = {
  fill: "predictor and target",
  ignore: "ignore",
  predictors_only: "predictor only",
  targets_only: "target only",
  outcome: "outcome (not used)",
};

export const STATES = {
  checking: "reading the file",
  ready: "ready to start",
  queued: "queued",
  running: "running",
  done: "filled",
  failed: "failed",
  cancelled: "cancelled",
  interrupted: "interrupted",
};

const counted = new Intl.NumberFormat("en");

export const count = (number) => counted.format(number);

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export function share(part, whole) {
  if (!whole || !part) return "0 %";
  const percent = (100 * part) / whole;
  return percent < 0.1 ? "< 0.1 %" : `${percent < 10 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

export function size(bytes) {
  const units = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];
  const [unit, each] = units.find(([, each]) => bytes >= each) ?? ["bytes", 1];
  return `${Number((bytes / each).toPrecision(3))} ${unit}`;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export function hours(number) {
  if (number < 1) return `${Math.max(1, Math.round(number * 60))} minutes`;
  return number < 72 ? plural(Math.round(number), "hour") : plural(Math.round(number / 24), "day");
}

export function moment(seconds) {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

export function figure(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  return Math.abs(number) >= 1e5 || (number && Math.abs(number) < 1e-3) ? number.toExponential(2) : String(Number(number.toPrecision(4)));
}
