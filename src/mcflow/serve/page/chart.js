// Line chart of a loss.

import { svg } from "./dom.js";
import { figure } from "./format.js";

const [WIDTH, HEIGHT, PAD] = [360, 120, 6];

export function chart(title, points) {
  const values = points.map(([, y]) => y).filter(Number.isFinite);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const first = points[0][0];
  const last = Math.max(points.at(-1)[0], first + 1);
  const x = (epoch) => PAD + ((WIDTH - 2 * PAD) * (epoch - first)) / (last - first);
  const y = (value) => HEIGHT - PAD - ((HEIGHT - 2 * PAD) * (value - low)) / (high - low || 1);
  const path = points.filter(([, value]) => Number.isFinite(value)).map(([epoch, value], place) => `${place ? "L" : "M"}${x(epoch).toFixed(1)},${y(value).toFixed(1)}`);
  const [end, now] = points.at(-1);
  const label = `${title}: ${figure(points[0][1])} at epoch ${first}, ${figure(now)} at epoch ${end}`;
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart", preserveAspectRatio: "none" },
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1, class: "axis" }),
    svg("path", { d: `${path.join("")}L${x(end).toFixed(1)},${HEIGHT}L${x(first)},${HEIGHT}Z`, class: "under" }),
    svg("path", { d: path.join(""), class: "line" }),
  );
}
