// The page agrees with itself and with `why`: every figure that the page shows at the failure, at the peak and at random
// positions of every recording comes from one state.
import { expect, test, type Page } from "@playwright/test";
import { rounded, size } from "../src/format";
import { holders, others } from "../src/headline";
import { shorten } from "../src/text";
import type { Device, Moment, Site, Sites, Tile, Why } from "../src/types";
import { inputs, openPage, told, why, withInput } from "./makeroom";

/** Positions from the first to the last, the same in every run. */
function positions(device: Device): number[] {
  let seed = 77;
  const found = new Set([device.start, device.peak.event, device.peak_reserved.event, 0, device.events]);
  for (const failure of device.failures.slice(0, 3)) found.add(failure.event);
  for (let count = 0; count < 4; count += 1) {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    found.add(seed % (device.events + 1));
  }
  return [...found];
}

const baseAt = (device: Device, event: number) =>
  device.capacity.base.filter(([from]) => from <= event).at(-1)?.[1] ?? 0;

const othersAt = (device: Device, event: number) =>
  device.capacity.base.filter(([from]) => from <= event).at(-1)?.[2] ?? 0;

async function answer<T>(url: string, path: string): Promise<T> {
  return (await (await fetch(new URL(`api/0/${path}`, url))).json()) as T;
}

async function figure(page: Page, id: string): Promise<number> {
  return Number(await page.getByTestId(id).getAttribute("data-bytes"));
}

/** All figures at one position: the chart's data, the read-out, the details, the flame graph. */
async function checkPosition(page: Page, url: string, number: number, device: Device, event: number): Promise<void> {
  await page.evaluate(
    ([at, chosen]) => {
      location.hash = `0.gpu=${chosen}&0.a=${at}`;
    },
    [event, number] as const,
  );
  await expect(page.getByTestId("moment")).toHaveAttribute("data-event", String(event));
  const moment = await answer<Moment>(url, `${number}/moment/${event}`);
  const tile = await answer<Tile>(url, `${number}/series/0/${Math.floor(event / 512)}`);
  const column = event % 512;
  // The chart's series is the read-out's moment.
  expect(tile.live[column], `live at ${event}`).toBe(moment.live);
  expect(tile.reserved[column], `reserved at ${event}`).toBe(moment.reserved);
  expect(
    tile.layers.reduce((sum, layer) => sum + (layer.live[column] ?? 0), 0),
    `layers at ${event}`,
  ).toBe(moment.live);
  const reading = page.getByTestId("reading-a");
  await expect(reading).toHaveAttribute("data-event", String(event));
  await expect(reading).toContainText(`live ${size(moment.live)}`);
  await expect(page.getByTestId("flame-total")).toContainText(`${size(moment.live)} live`);
  expect(await figure(page, "moment-live")).toBe(moment.live);
  let held = moment.live;
  if (device.has_segments) {
    await expect(reading).toContainText(`reserved ${size(moment.reserved)}`);
    const parts = (await figure(page, "moment-rounding")) + (await figure(page, "moment-unused"));
    expect(moment.live + parts, `reserved at ${event}`).toBe(await figure(page, "moment-reserved"));
    held = moment.reserved;
  }
  const base = baseAt(device, event);
  const others = othersAt(device, event);
  if (base > others) expect(await figure(page, "moment-base")).toBe(base - others);
  if (others > 0) expect(await figure(page, "moment-others")).toBe(others);
  const { bytes: capacity, is_limit: isLimit } = device.capacity;
  // A limit counts the same at all moments: the run never exceeds it.
  if (capacity !== null && isLimit) expect(base + held, `below the limit at ${event}`).toBeLessThanOrEqual(capacity);
  if (capacity !== null && capacity >= base + held)
    expect((await figure(page, "moment-free")) + base + held, `capacity at ${event}`).toBe(capacity);
}

/** The header, the text of the chart and the largest moments of the series name the same figures. */
async function checkExtremes(page: Page, url: string, number: number, device: Device): Promise<void> {
  const at = async (event: number) => await answer<Moment>(url, `${number}/moment/${event}`);
  expect((await at(device.peak.event)).live, "live at the peak").toBe(device.peak.live);
  expect((await at(device.peak.event)).reserved, "reserved at the peak").toBe(device.peak.reserved);
  expect((await at(device.peak_reserved.event)).reserved, "most reserved").toBe(device.peak_reserved.reserved);
  if (device.peak.live > 0) await expect(page.getByTestId("facts")).toContainText(`peak ${size(device.peak.live)}`);
  if (device.history === "none") return;
  const chart = page.getByTestId("plot");
  await expect(chart).toHaveAttribute("aria-label", new RegExp(`peak ${escaped(size(device.peak.live))}`));
  if (device.has_segments)
    await expect(chart).toHaveAttribute(
      "aria-label",
      new RegExp(`${escaped(size(device.peak_reserved.reserved))} res`),
    );
  const [failure] = device.failures;
  if (failure !== undefined)
    await expect(chart).toHaveAttribute("aria-label", new RegExp(`failed: ${escaped(size(failure.size))}`));
}

const escaped = (text: string) => text.replace(/[.]/g, "\\.");

/** The card lists the layers of the chart, in their colors. */
async function checkHolders(page: Page, sites: Site[], total: number): Promise<void> {
  if (total === 0) return;
  const largest = sites.filter((site) => site.live_at_start > 0);
  largest.sort((one, other) => other.live_at_start - one.live_at_start);
  // The colors of the legend come with the columns of the chart, a moment after the rows.
  await expect(async () => {
    const colors = await page
      .locator(".legend .layer")
      .evaluateAll((all) =>
        all.map((one) => [one.getAttribute("title"), one.querySelector(".swatch")?.getAttribute("data-color")]),
      );
    const inLegend = new Map(colors as [string, string][]);
    for (const [index, { name, live_at_start: bytes }] of largest.slice(0, 5).entries()) {
      const row = page.getByTestId("holder").nth(index);
      expect(await row.getAttribute("data-bytes")).toBe(String(bytes));
      const color = inLegend.get(shorten(name, 400));
      if (color !== undefined) expect(await row.locator(".bar").getAttribute("data-color"), name).toBe(color);
    }
  }).toPass({ timeout: 15_000 });
}

/** What is written into the chart and into the headline has the figures of the account. */
async function checkLabels(page: Page, device: Device, said: Why, moment: Moment): Promise<void> {
  // Growth is in the headline if it decides, else in the card.
  const grew = said.growth_summary === said.health.because ? null : said.growth_summary;
  if (grew === null) await expect(page.getByTestId("growth")).toHaveCount(0);
  else await expect(page.getByTestId("growth")).toHaveText(rounded(grew));
  if (said.health.state !== "unknown")
    await expect(page.locator(".pill")).toHaveText(new RegExp(`^${said.health.state}\\b`, "i"));
  if (said.health.because !== null)
    await expect(page.getByTestId("verdict")).toContainText(rounded(said.health.because));
  const [, most] = /peak reserved memory was ([\d.]+ [KMGT]?i?B)/.exec(said.verdict.summary) ?? [];
  if (most !== undefined) expect(size(device.peak_reserved.reserved), "peak reserved").toBe(rounded(most));
  if (device.history === "none") return;
  const labels = ((await page.locator(".uplot").getAttribute("data-labels")) ?? "").split("\n");
  for (const label of labels) {
    const [, unused] = /(?:unused at the (?:failure|peak):;?|, at the (?:failure|peak)) (.*)/.exec(label) ?? [];
    if (unused !== undefined) expect(unused, label).toBe(size(moment.free));
    const [, live, base] = /^peak (.*) live(?: \+ (.*) (?:context|other).*)?$/.exec(label) ?? [];
    if (live === undefined) continue;
    expect(live, label).toBe(size(device.peak.live));
    const below = baseAt(device, device.peak.event);
    expect(base, label).toBe(below > 0 ? size(below) : undefined);
  }
}

/** The account of `why` is the state at the position where the cursor starts. */
async function checkAccount(page: Page, url: string, number: number, device: Device, said: Why): Promise<void> {
  const { ledger } = said;
  if (ledger === null || ledger.device !== device.device || device.kind === "pinned") return;
  const line = (name: RegExp) =>
    ledger.lines.filter(({ what }) => name.test(what)).reduce((sum, { bytes: one }) => sum + one, 0);
  const moment = await answer<Moment>(url, `${number}/moment/${device.start}`);
  const free = ledger.lines.find(({ what }) => what === "free");
  if (ledger.total_bytes !== null && free !== undefined) {
    expect(device.capacity.bytes).toBe(ledger.total_bytes);
    const base = baseAt(device, device.start);
    expect(base + moment.reserved + free.bytes, "the account adds up to the capacity").toBe(ledger.total_bytes);
  }
  if (device.has_segments) {
    expect(moment.free, "unused").toBe(line(/^unused/));
    expect(moment.rounding, "rounding").toBe(line(/^rounding/));
  }
  const { sites, live_at_start: total } = await answer<Sites>(url, `${number}/sites`);
  expect(total, "the sites add up").toBe(moment.live);
  await checkHolders(page, sites, total);
  await checkLabels(page, device, said, moment);
  await page
    .getByTestId("who")
    .selectOption("frame", { timeout: 1000 })
    .catch(() => undefined);
  const own = holders(said);
  // If this process holds nothing, the card lists what the account has.
  const known = own.total > 0 ? own : others(said);
  const live = said.sites.length === 0 ? 0 : own.total;
  if (live > 0) expect(moment.live, "live by line").toBe(live);
  await expect(page.getByTestId("holders")).toContainText(known.total > 0 ? size(known.total) : "Live memory");
  for (const [index, row] of known.rows.slice(0, 5).entries())
    await expect(page.getByTestId("holder").nth(index)).toHaveAttribute("data-bytes", String(row.bytes));
}

for (const input of inputs())
  test(`${input.name} agrees with why everywhere`, async ({ page }) => {
    await withInput("served", [input.path], page, async (url) => {
      const said = why(input);
      await openPage(page, url);
      const [one] = (await told(url)).inputs;
      if (one === undefined) throw new Error("no input");
      // Of many devices, the one of the verdict and its neighbors are enough.
      for (const [number, device] of one.devices.entries()) {
        if (number > 2 && number !== one.first_device) continue;
        if (number === one.first_device) await checkAccount(page, url, number, device, said);
        for (const event of positions(device)) await checkPosition(page, url, number, device, event);
        await checkExtremes(page, url, number, device);
        for (const failure of device.failures) {
          if (failure.event !== device.start || device.capacity.bytes === null) continue;
          const over = baseAt(device, failure.event) + failure.reserved + failure.size - device.capacity.bytes;
          const { free } = device.capacity;
          if (free !== null) expect(over, "the block crosses the limit by what it lacks").toBe(failure.size - free);
        }
      }
    });
  });
