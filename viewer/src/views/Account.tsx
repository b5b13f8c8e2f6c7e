// The account of the device as a bar. Every part that has parts can be opened, down to the program's own lines.
import { bytes, share } from "../format";
import { down, entries, up, walk, type Entry } from "../ledger";
import type { Pane } from "../model";
import { siteColor, type Colors } from "../palette";
import { shorten } from "../text";
import { Name } from "./Name";

interface Look {
  background: string;
  pattern: "" | "hatched" | "outlined";
}

/** Kinds of memory differ in pattern as well as in tone. */
function look(entry: Entry, index: number, colors: Colors): Look {
  if (entry.place) return { background: siteColor(index, colors), pattern: "" };
  const name = entry.name;
  if (/^free\b/.test(name)) return { background: colors.panel, pattern: "outlined" };
  if (/unused|cached|kept/.test(name)) return { background: siteColor(1, colors), pattern: "hatched" };
  if (/unaccounted/.test(name)) return { background: colors.failure, pattern: "hatched" };
  if (/^live|in use/.test(name)) return { background: siteColor(0, colors), pattern: "" };
  if (/waiting/.test(name)) return { background: siteColor(4, colors), pattern: "hatched" };
  if (/private/.test(name)) return { background: siteColor(2, colors), pattern: "" };
  if (/rounding/.test(name)) return { background: siteColor(7, colors), pattern: "" };
  if (/context|code|library|libraries/.test(name)) return { background: siteColor(6, colors), pattern: "" };
  if (/process/.test(name)) return { background: siteColor(3, colors), pattern: "" };
  return { background: siteColor(index + 8, colors), pattern: "" };
}

export function Account({ pane }: { pane: Pane }) {
  const root = entries(pane.input.why);
  const colors = pane.model.colors;
  if (root === null) return null;
  const path = pane.state.value.ledger;
  const way = walk(root, path);
  const here = way[way.length - 1] ?? root;
  const whole = Math.max(
    1,
    here.parts.reduce((sum, part) => sum + Math.max(0, part.bytes), 0),
  );
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
    <section class="account" aria-label="memory breakdown" id={`account-${pane.index}`} tabIndex={-1}>
      <h2>
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
                {shorten(entry.name, 40)}
              </button>
            ) : (
              shorten(entry.name, 60)
            )}
          </span>
        ))}
        {pane.input.why.ledger?.total_bytes !== null || way.length > 1 ? (
          <span class="figure">{`, ${bytes(here.bytes)}`}</span>
        ) : null}
      </h2>
      <div class="stack" role="img" aria-label="the memory breakdown as a bar; the table below has the same figures">
        {here.parts.map((part, index) => {
          const { background, pattern } = look(part, index, colors);
          if (part.bytes <= 0) return null;
          return (
            <div
              key={index}
              class={`part ${pattern}`}
              style={{ width: `${(part.bytes / whole) * 100}%`, background }}
              title={`${shorten(part.name, 100)}: ${bytes(part.bytes)}`}
              onClick={() => {
                open(index);
              }}
            />
          );
        })}
      </div>
      <table class="ledger" data-testid="account">
        <tbody>
          {here.parts.map((part, index) => {
            const { background, pattern } = look(part, index, colors);
            return (
              <tr key={index} data-what={part.name.slice(0, 200)} data-bytes={part.bytes}>
                <td>
                  <span class={`swatch ${pattern}`} style={{ background }} />
                </td>
                <th scope="row">
                  {part.parts.length > 0 || part.place ? (
                    <button
                      type="button"
                      class="plain"
                      onClick={() => {
                        open(index);
                      }}
                    >
                      {shorten(part.name, 120)}
                      {part.parts.length > 0 ? " ›" : ""}
                    </button>
                  ) : (
                    shorten(part.name, 120)
                  )}
                </th>
                <td class="figure" data-testid="account-bytes">
                  {bytes(part.bytes)}
                </td>
                <td class="figure quiet">{share(part.bytes, whole)}</td>
                <td class="quiet wide">
                  {part.note !== null && <Name model={pane.model} text={part.note} most={120} />}
                </td>
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
