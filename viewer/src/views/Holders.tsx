// The card that lists live memory at the moment of the verdict: by innermost frame, line, kind, module, stage, thread or
// stream. If this process holds none, it lists what the account has instead.
import { useWindow } from "../draw";
import { rounded, share, size } from "../format";
import { holders, momentName, others, type Holder } from "../headline";
import { useAnswer, type Pane } from "../model";
import { othersColor, siteColor, type Colors } from "../palette";
import type { NamedSite } from "../sites";
import { HOLDER_GROUPS, type Who } from "../state";
import { shortPlace } from "../text";
import type { Groups } from "../types";
import { Prose } from "./Name";

/** Rows of the card, and of that of a low window. */
const SHOWN = 5;
const SHOWN_LOW = 4;
const LOW = 800;

/** Windows that are narrower have room for shorter names. */
const NARROW = 1300;

const NAMES: Record<Who, string> = {
  frame: "frame",
  line: "line",
  kind: "kind",
  module: "module",
  stage: "stage",
  thread: "thread",
  stream: "stream",
};

interface Row extends Holder {
  /** The site that it is in the chart. */
  site?: NamedSite | undefined;
  /** Why it is this kind. */
  because?: string | undefined;
}

interface Held {
  rows: Row[];
  total: number;
  /** How to record what the groups need. */
  hint: string | null;
  /** Whether it is memory of other processes and of the driver. */
  isForeign: boolean;
}

export function HoldersCard({ pane }: { pane: Pane }) {
  const [width, height] = useWindow();
  const isNarrow = width < NARROW;
  const shown = height < LOW ? SHOWN_LOW : SHOWN;
  const most = isNarrow ? 28 : 44;
  const { why } = pane.input;
  const { model, device } = pane;
  const who = model.who.value;
  // Lines are the sites of the chart. Other groups have more to say than its layers.
  const isByLine = who === "line" && model.by.value === "line";
  const path = device === undefined || who === "frame" || isByLine ? null : pane.path(`groups/${who}/${device.start}`);
  const { answer } = useAnswer<Groups>(model, path);
  const { rows, total, hint, isForeign } = held(pane, path === null ? null : (answer?.value ?? null), isByLine);
  const rest = rows.length === 0 ? 0 : total - rows.slice(0, shown).reduce((sum, row) => sum + row.bytes, 0);
  const canFind = !isForeign && (who === "frame" || who === "line");
  const find = (name: string) => {
    // A line of the flame graph is found by its end: paths are shortened differently.
    model.search.value = name.replace(/^.*\//, "");
    model.open("flame");
  };
  const moment = momentName(why, device);
  return (
    <section class="card holders" aria-label="live memory" data-testid="holders">
      <h3>
        <span>{title(total, isForeign, ` ${moment}`)}</span>
        {total > 0 && !isForeign && device !== undefined && (
          <select
            aria-label="list by"
            value={who}
            data-testid="who"
            onChange={(event: Event) => {
              const chosen = (event.currentTarget as HTMLSelectElement).value;
              model.who.value = HOLDER_GROUPS.find((one) => one === chosen) ?? "line";
              model.remember();
            }}
          >
            {HOLDER_GROUPS.map((one) => (
              <option key={one} value={one}>
                {`by ${NAMES[one]}`}
              </option>
            ))}
          </select>
        )}
      </h3>
      {total === 0 && <p>{empty(pane)}</p>}
      {isForeign && <p data-testid="foreign">This process held no memory {moment}.</p>}
      <table>
        <tbody>
          {rows.slice(0, shown).map((row) => (
            <tr key={row.name} data-testid="holder" data-bytes={row.bytes} title={row.because}>
              <td class="figure">{size(row.bytes)}</td>
              <td class="meter" aria-hidden="true">
                <div
                  class="bar"
                  data-color={barColor(row, isForeign, model.colors)}
                  style={{
                    width: `${(row.bytes / Math.max(1, rows[0]?.bytes ?? 0)) * 100}%`,
                    background: barColor(row, isForeign, model.colors),
                  }}
                />
              </td>
              <th scope="row">
                {canFind ? (
                  <button
                    type="button"
                    class="plain"
                    title={row.name.slice(0, 400)}
                    onClick={() => {
                      find(row.name);
                    }}
                  >
                    <bdi>{shortPlace(row.name, most)}</bdi>
                  </button>
                ) : (
                  <bdi title={row.because ?? row.name.slice(0, 400)}>{shortPlace(row.name, most)}</bdi>
                )}
              </th>
            </tr>
          ))}
        </tbody>
      </table>
      {hint !== null && (
        <p class="quiet" data-testid="who-hint">
          {hint}
        </p>
      )}
      <p class="quiet">
        {rest > 0 && (
          <>
            {`${size(rest)} (${share(rest, total)}) elsewhere, `}
            <button
              type="button"
              class="plain link"
              onClick={() => {
                model.search.value = "";
                if (who !== model.by.value) {
                  if (who === "frame" || model.source.embedded) {
                    model.open("flame");
                    return;
                  }
                  model.group(who);
                }
                model.open("sites");
              }}
            >
              show all
            </button>
            {". "}
          </>
        )}
      </p>
      {why.growth_summary !== null && why.growth_summary !== why.health.because && (
        <p class="growth" data-testid="growth">
          <Prose model={model} text={rounded(why.growth_summary)} most={400} />
        </p>
      )}
    </section>
  );
}

/** What the card lists, and how much that is. */
function title(total: number, isForeign: boolean, moment: string): string {
  if (total === 0) return "Live memory";
  return `${isForeign ? "Memory in use" : "Live memory"}${moment}: ${size(total)}`;
}

function held(pane: Pane, groups: Groups | null, isByLine: boolean): Held {
  const { why } = pane.input;
  const none = { hint: null, isForeign: false };
  const sites = pane.sites.value;
  if (groups !== null) {
    const byName = new Map(sites.map((site) => [site.name, site]));
    const rows = groups.groups.map(({ name, title, because, bytes }) => {
      const site = pane.model.by.value === groups.by ? byName.get(title ?? name) : undefined;
      return { name: title ?? name, bytes, because, site };
    });
    rows.sort((one, other) => other.bytes - one.bytes);
    return { ...none, rows, total: groups.live_bytes, hint: groups.hint };
  }
  const own = holders(why);
  const total = pane.liveAtStart.value;
  if (pane.device !== undefined && (isByLine || pane.device.kind === "pinned")) {
    if (total === null) return { ...none, rows: [], total: own.total };
    const rows = sites.map((site) => ({ name: site.name, bytes: site.live_at_start, site }));
    const held = rows.filter(({ bytes }) => bytes > 0).sort((one, other) => other.bytes - one.bytes);
    if (total > 0 || pane.device.kind === "pinned") return { ...none, rows: held, total };
  } else if (own.total > 0 || pane.device === undefined) return { ...none, ...own };
  return { ...none, ...others(why), isForeign: others(why).total > 0 };
}

/** The color that the chart has for it. */
function barColor({ name, site }: Row, isForeign: boolean, colors: Colors): string {
  if (isForeign) return /^other processes/.test(name) ? othersColor(colors) : colors.base;
  return site === undefined ? colors.live : siteColor(site.color, colors);
}

function empty(pane: Pane): string {
  if (pane.device === undefined)
    return pane.input.why.ledger === null
      ? "The message does not show what holds the memory. A recording shows it line by line."
      : "The message contains only totals. A recording shows what holds the memory, line by line.";
  return pane.device.events === 0 ? "No allocation was recorded." : "This process held no memory at that moment.";
}
