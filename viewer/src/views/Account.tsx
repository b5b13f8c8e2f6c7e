// The account of the device as a card with a bar. Every part that has parts can be opened, down to the program's own lines.
import { rounded, share, size } from "../format";
import { down, entries, up, walk, type Entry } from "../ledger";
import type { Pane } from "../model";
import { mix, othersColor, siteColor, type Colors } from "../palette";
import { shorten } from "../text";

interface Look {
  background: string;
  pattern: "" | "unused" | "waiting" | "outlined" | "dotted";
}

/** Kinds of memory differ in pattern as well as in tone. Their colors mean the same in the chart and in the address space. */
function look(entry: Entry, index: number, pane: Pane): Look {
  const { colors } = pane.model;
  if (entry.place) {
    const site = pane.sites.value.find((candidate) => candidate.name === entry.name);
    return {
      background: site === undefined ? tint(colors.live, index, colors) : siteColor(site.color, colors),
      pattern: "",
    };
  }
  const name = entry.name;
  if (/^free\b/.test(name)) return { background: colors.panel, pattern: "outlined" };
  if (/unused|cached|too small|large enough/.test(name)) return { background: colors.unusedBack, pattern: "unused" };
  if (/unaccounted/.test(name)) return { background: colors.unknown, pattern: "dotted" };
  if (/waiting/.test(name)) return { background: colors.live, pattern: "waiting" };
  if (/rounding/.test(name)) return { background: colors.neutral, pattern: "outlined" };
  if (/^live|in use|private|other live/.test(name)) return { background: colors.live, pattern: "" };
  const isContext = /context|code/.test(name);
  return { background: isContext ? colors.base : othersColor(colors), pattern: "" };
}

/** Neighbors of one kind differ in tone. */
function tint(color: string, index: number, colors: Colors): string {
  return index % 2 === 0 ? color : mix(color, colors.panel, 0.3);
}

/** Entries that the bar shows to scale. Without a total, free memory is not part of what is accounted for. */
function toScale(part: Entry, isWhole: boolean): boolean {
  return part.bytes > 0 && (isWhole || !/^free\b/.test(part.name));
}

/** The parts of a line that are lines of the account, not of the program. */
function subLines(part: Entry, isTop: boolean): Entry[] {
  return isTop ? part.parts.filter(({ place, bytes }) => !place && bytes > 0) : [];
}

export function Account({ pane }: { pane: Pane }) {
  const root = entries(pane.input.why);
  if (root === null)
    return (
      <section class="card account" aria-label="memory breakdown" id={`account-${pane.index}`} tabIndex={-1}>
        <h3>Where the memory is</h3>
        <p>{pane.device === undefined ? "The message contains no memory breakdown." : "No memory was recorded."}</p>
      </section>
    );
  const path = pane.still.value.ledger;
  const way = walk(root, path);
  const here = way[way.length - 1] ?? root;
  const isWhole = pane.input.why.ledger?.total_bytes !== null || way.length > 1;
  const whole = Math.max(
    1,
    here.parts.filter((part) => toScale(part, isWhole)).reduce((sum, part) => sum + part.bytes, 0),
  );
  // At the top, lines are shown with their parts, as `why` prints them.
  const rows = here.parts.flatMap((part, index) => [
    { part, index, isSub: false },
    ...subLines(part, way.length === 1).map((sub) => ({ part: sub, index, isSub: true })),
  ]);
  const bars = rows.filter(({ part, isSub }) => isSub || subLines(part, way.length === 1).length === 0);
  const open = (index: number) => {
    const part = here.parts[index];
    if (part === undefined) return;
    if (part.parts.length > 0) pane.update({ ledger: down(path, index) });
    else if (part.place) {
      const site = pane.sites.value.find((candidate) => candidate.name === part.name);
      if (site !== undefined) pane.select(site.id);
    }
  };
  return (
    <section class="card account" aria-label="memory breakdown" id={`account-${pane.index}`} tabIndex={-1}>
      <h3>
        {way.length === 1 && "Where the memory is: "}
        {way.map((entry, depth) => (
          <span key={depth}>
            {depth > 0 && <span class="quiet"> › </span>}
            {depth < way.length - 1 ? (
              <button
                type="button"
                class="plain"
                onClick={() => {
                  pane.update({ ledger: path.split(".").slice(0, depth).join(".") });
                }}
              >
                {shorten(entry.name.replaceAll("`", ""), 40)}
              </button>
            ) : (
              shorten(entry.name.replaceAll("`", ""), 60)
            )}
          </span>
        ))}
        {isWhole ? <span class="figure">{`, ${size(here.bytes)}`}</span> : null}
      </h3>
      <div class="stack" role="img" aria-label="the memory breakdown as a bar; the table below has the same figures">
        {bars.map(({ part, index }, number) => {
          const { background, pattern } = look(part, index, pane);
          if (!toScale(part, isWhole)) return null;
          return (
            <div
              key={number}
              class={`part ${pattern}`}
              style={{ width: `${(part.bytes / whole) * 100}%`, background }}
              title={`${shorten(part.name, 100)}: ${size(part.bytes)}`}
              onClick={() => {
                open(index);
              }}
            />
          );
        })}
      </div>
      <table class="ledger" data-testid="account">
        <tbody>
          {rows.map(({ part, index, isSub }, number) => {
            const { background, pattern } = look(part, index, pane);
            return (
              <tr
                key={number}
                class={isSub ? "sub" : undefined}
                data-what={part.name.slice(0, 200)}
                data-bytes={part.bytes}
                title={part.note?.slice(0, 300)}
              >
                <td>
                  <span class={`swatch ${pattern}`} style={{ background }} />
                </td>
                <th scope="row">
                  <span class="what">
                    {!isSub && (part.parts.length > 0 || part.place) ? (
                      <button
                        type="button"
                        class="plain"
                        onClick={() => {
                          open(index);
                        }}
                      >
                        {shorten(part.name, 120)}
                        {part.parts.length > 0 ? " ›" : null}
                      </button>
                    ) : (
                      shorten(part.name, 120)
                    )}
                  </span>
                  {part.note !== null && <span class="narrow-only quiet">{shorten(rounded(part.note), 60)}</span>}
                </th>
                <td class="figure" data-testid="account-bytes">
                  {size(part.bytes)}
                </td>
                <td class="figure quiet">{toScale(part, isWhole) ? share(part.bytes, whole) : ""}</td>
                <td class="quiet wide">{part.note !== null && shorten(rounded(part.note), 60)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {way.length > 1 && (
        <button
          type="button"
          class="plain"
          data-testid="account-up"
          onClick={() => {
            pane.update({ ledger: up(path) });
          }}
        >
          ‹ back
        </button>
      )}
    </section>
  );
}
