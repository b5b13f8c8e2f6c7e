// Two inputs: the difference first, as a sentence and as figures, then the lines that differ.
import { count, share, signed, size, time } from "../format";
import type { Model, Pane } from "../model";
import { shorten, shortPlace, stem } from "../text";
import type { Device, Site } from "../types";
import { headline } from "../headline";

export interface Pair {
  name: string;
  before: number;
  after: number;
}

/** Sites joined by name; sites with the same name count as one. Those that changed most come first. */
export function join(before: Site[], after: Site[]): Pair[] {
  const pairs = new Map<string, Pair>();
  const add = (sites: Site[], side: "before" | "after") => {
    for (const site of sites) {
      const pair = pairs.get(site.name) ?? { name: site.name, before: 0, after: 0 };
      pair[side] += site.live_at_peak;
      pairs.set(site.name, pair);
    }
  };
  add(before, "before");
  add(after, "after");
  const change = ({ before: one, after: other }: Pair) => Math.abs(other - one);
  return [...pairs.values()].sort((one, other) => change(other) - change(one));
}

/** Reserved memory where it is known, else live memory. */
function peakOf(device: Device): number {
  return device.has_segments ? device.peak_reserved.reserved : device.peak.live;
}

/** The difference in one sentence. */
export function difference(before: Pane, after: Pane): string {
  const [one, other] = [before.device, after.device];
  const [first, second] = [before, after].map((pane) => shorten(stem(pane.input.name), 60)) as [string, string];
  if (one === undefined || other === undefined) return `${first} and ${second}`;
  const word = one.has_segments && other.has_segments ? "reserves" : "needs";
  const [from, to] = word === "reserves" ? [peakOf(one), peakOf(other)] : [one.peak.live, other.peak.live];
  const failed = (device: Device) => device.failures_total > 0;
  const ends =
    failed(one) === failed(other) ? "" : failed(other) ? `, and fails where ${first} does not` : `, and does not fail`;
  if (Math.abs(to - from) < Math.max(1 << 20, from * 0.01))
    return `${second} ${word} as much as ${first} at its peak: ${size(to)}${ends}.`;
  const by = size(Math.abs(to - from));
  const percent = share(Math.abs(to - from), from);
  return `${second} ${word} ${by} ${to < from ? "less" : "more"} than ${first} at its peak: ${size(to)} instead of ${size(from)} (${to < from ? "−" : "+"}${percent})${ends}.`;
}

type Figure = [string, (device: Device) => number | null, "bytes" | "count" | "time"];

const FIGURES: Figure[] = [
  ["most reserved", (device) => (device.has_segments ? device.peak_reserved.reserved : null), "bytes"],
  ["peak of live memory", (device) => device.peak.live, "bytes"],
  ["unused at that peak", (device) => (device.has_segments ? device.peak.reserved - device.peak.live : null), "bytes"],
  ["failed requests", (device) => device.failures_total, "count"],
  ["events", (device) => device.events, "count"],
  [
    "duration",
    (device) => (device.first_time === null || device.last_time === null ? null : device.last_time - device.first_time),
    "time",
  ],
];

const FORMATS = { bytes: size, count, time: (value: number) => time(value) };

/** Sites that differ by less are left out. */
const LEAST_CHANGE = 1 << 10;

/** A name that may be broken after its hyphens and underscores. */
function Breakable({ text }: { text: string }) {
  return (
    <>
      {text.split(/(?<=[-_.])/).map((part, index) => (
        <span key={index}>
          {part}
          <wbr />
        </span>
      ))}
    </>
  );
}

export function Comparison({ model }: { model: Model }) {
  const [before, after] = model.panes;
  if (before === undefined || after === undefined) return null;
  const [one, other] = [before.device, after.device];
  const changed = join(before.sites.value, after.sites.value).filter(
    (pair) => Math.abs(pair.after - pair.before) >= LEAST_CHANGE,
  );
  const names = [before, after].map((pane) => shorten(stem(pane.input.name), 40));
  return (
    <section class="compare" aria-label="both inputs">
      <h2 class="sentence" data-testid="difference">
        {difference(before, after)}
      </h2>
      <div class="cards two">
        <div class="card">
          <table>
            <thead>
              <tr>
                <td />
                {names.map((name, index) => (
                  <th key={index} scope="col" class="figure">
                    <Breakable text={name} />
                  </th>
                ))}
                <th scope="col" class="figure">
                  change
                </th>
              </tr>
            </thead>
            <tbody>
              <tr>
                <th scope="row">verdict</th>
                {[before, after].map((pane) => (
                  <td key={pane.index} class="figure wrapped">
                    {headline(pane.input.why, pane.device, pane.alternative.value).label}
                  </td>
                ))}
                <td />
              </tr>
              {FIGURES.map(([name, of, format]) => {
                const [left, right] = [one && of(one), other && of(other)];
                const show = (value: number | null | undefined) => (value == null ? "" : FORMATS[format](value));
                const gap = left == null || right == null ? null : right - left;
                if (left == null && right == null) return null;
                return (
                  <tr key={name}>
                    <th scope="row">{name}</th>
                    <td class="figure">{show(left)}</td>
                    <td class="figure">{show(right)}</td>
                    <td class="figure">
                      {gap === null || format === "time"
                        ? ""
                        : format === "bytes"
                          ? signed(gap)
                          : gap === 0
                            ? ""
                            : `${gap > 0 ? "+" : "−"}${count(Math.abs(gap))}`}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
        <div class="card">
          <h3>Lines that hold more or less at the peak</h3>
          {changed.length === 0 ? (
            <p>No line differs.</p>
          ) : (
            <table class="rows">
              <thead>
                <tr>
                  <th scope="col">site</th>
                  {names.map((name, index) => (
                    <th key={index} scope="col" class="figure">
                      <Breakable text={name} />
                    </th>
                  ))}
                  <th scope="col" class="figure">
                    change
                  </th>
                </tr>
              </thead>
              <tbody>
                {changed.slice(0, 6).map((pair) => (
                  <tr key={pair.name} data-testid="pair">
                    <th scope="row">
                      <span title={pair.name.slice(0, 400)}>{shortPlace(pair.name, 44)}</span>
                    </th>
                    <td class="figure">{size(pair.before)}</td>
                    <td class="figure">{size(pair.after)}</td>
                    <td class="figure">{signed(pair.after - pair.before)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {changed.length > 6 && <p class="quiet">{count(changed.length - 6)} more lines differ.</p>}
        </div>
      </div>
    </section>
  );
}
