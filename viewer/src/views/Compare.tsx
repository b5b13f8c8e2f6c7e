// Two inputs: the difference first, as a sentence and as figures, then by kind of memory and by line.
import { count, rounded, share, signed, size, time } from "../format";
import { useAnswer, type Pane } from "../model";
import { shorten, shortPlace, stem } from "../text";
import type { Device, Diff } from "../types";
import { headline } from "../headline";

/** Reserved memory where it is known, else live memory. */
function peakOf(device: Device): number {
  return device.has_segments ? device.peak_reserved.reserved : device.peak.live;
}

/** The difference in one sentence. */
export function difference(before: Pane, after: Pane): string {
  const [one, other] = [before.device, after.device];
  const [first, second] = [before, after].map((pane) => shorten(stem(pane.input.name), 60)) as [string, string];
  if (one === undefined || other === undefined) {
    const texts =
      one === undefined && other === undefined
        ? `${first} and ${second} are`
        : `${one === undefined ? first : second} is`;
    return `${texts} not a recording: only the verdicts can be compared.`;
  }
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
  ["unused at that peak", (device) => (device.has_segments ? device.peak.unused : null), "bytes"],
  ["failed requests", (device) => (device.history === "none" ? null : device.failures_total), "count"],
  ["events", (device) => (device.history === "none" ? null : device.events), "count"],
  [
    "duration",
    (device) => (device.first_time === null || device.last_time === null ? null : device.last_time - device.first_time),
    "time",
  ],
];

const FORMATS = { bytes: size, count, time: (value: number) => time(value) };

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

export function Comparison({ before, after }: { before: Pane; after: Pane }) {
  const { model } = before;
  const [one, other] = [before.device, after.device];
  const both = one !== undefined && other !== undefined;
  const { answer } = useAnswer<Diff>(model, both ? before.path(`diff/${after.index}/${after.number}`) : null);
  const diff = both ? answer?.value : undefined;
  const names = [before, after].map((pane) => shorten(stem(pane.input.name), 40));
  return (
    <section class="compare" aria-label="both inputs">
      <h2 class="sentence" data-testid="difference">
        {difference(before, after)}
      </h2>
      {diff !== undefined && <Summary diff={diff} />}
      <div class="cards">
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
        {diff !== undefined && (
          <>
            <ChangeTable
              title={`${momentOf(diff)}, by kind`}
              testid="kind-change"
              none="No kind of memory differs."
              rows={diff.kinds.map((row) => ({ ...row, name: row.title, note: "", became: "" }))}
            />
            <ChangeTable
              title={`${momentOf(diff)}, by line`}
              testid="line-change"
              none="No line differs."
              rows={diff.lines.map((row) => ({
                ...row,
                name: row.place ?? "no stack recorded",
                note: row.title,
                became: became(row),
              }))}
            />
          </>
        )}
      </div>
    </section>
  );
}

/** The sentence of `makeroom diff`. A leak is what matters most: it stands out. */
function Summary({ diff: { verdict } }: { diff: Diff }) {
  const isLeak = verdict.id.startsWith("leak");
  const text = shorten(rounded(verdict.summary), 400);
  const [, first = "", rest = ""] = /^(.*?\.) (.*)$/.exec(text) ?? [];
  return (
    <p class={isLeak ? "leak" : "quiet"} data-testid="diff-summary" data-verdict={verdict.id}>
      {isLeak && first !== "" ? (
        <>
          <b>{first}</b> {rest}
        </>
      ) : (
        <>
          <b>Live memory.</b> {text}
        </>
      )}
    </p>
  );
}

/** The moments that are compared: where each run failed, or its peak. */
function momentOf({ before_moment, after_moment }: Diff): string {
  if (before_moment !== after_moment) return `At the ${before_moment} and the ${after_moment}`;
  return `At the ${after_moment}`;
}

/** What became of a line, if its figures do not show it. */
function became({ status, moved_from }: Diff["lines"][number]): string {
  if (moved_from !== null) return `moved from ${moved_from}`;
  return status === "new" || status === "gone" ? status : "";
}

/** Rows of each table. */
const SHOWN = 6;

interface Change {
  name: string;
  /** What it is. */
  note: string;
  became: string;
  before_bytes: number;
  after_bytes: number;
}

/** What differs, largest change first, and what does not. */
function ChangeTable({ title, testid, rows, none }: { title: string; testid: string; rows: Change[]; none: string }) {
  const change = (row: Change) => row.after_bytes - row.before_bytes;
  const same = rows.filter((row) => change(row) === 0);
  const changed = rows.filter((row) => change(row) !== 0);
  changed.sort((one, other) => Math.abs(change(other)) - Math.abs(change(one)));
  const more = changed.length - SHOWN;
  return (
    <div class="card">
      <h3>{title}</h3>
      {changed.length === 0 && <p class="quiet">{none}</p>}
      <table class="changes">
        <tbody>
          {changed.slice(0, SHOWN).map((row) => (
            <tr
              key={`${row.name} ${row.note}`}
              data-testid={testid}
              data-before={row.before_bytes}
              data-after={row.after_bytes}
            >
              <td class="figure">{signed(change(row))}</td>
              <th scope="row" title={row.name.slice(0, 400)}>
                {shortPlace(row.name, 36)} {row.note !== "" && <span class="quiet">{row.note}</span>}
              </th>
              <td class="figure quiet" title={shorten(row.became, 400)}>
                {row.became === "" ? `${size(row.before_bytes)} → ${size(row.after_bytes)}` : shorten(row.became, 28)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {more > 0 && <p class="quiet">{`${count(more)} more ${more === 1 ? "differs" : "differ"}.`}</p>}
      {same.length > 0 && changed.length > 0 && (
        <p class="quiet">{`Unchanged: ${same.map(({ name, after_bytes }) => `${name} ${size(after_bytes)}`).join(", ")}.`}</p>
      )}
    </div>
  );
}
