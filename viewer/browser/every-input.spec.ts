// Every trace in the repository, every recording of `demo` and every trace in the directory $TRACES, served and as a
// report: the figures equal those of `why`, and every view works.
import { join } from "node:path";
import { expect, test, type Page } from "@playwright/test";
import { rounded, size } from "../src/format";
import { holders } from "../src/headline";
import { shorten } from "../src/text";
import type { Device, LedgerLine, Why, WhySite } from "../src/types";
import { expectNoOverflow, inputs, openPage, SCREENSHOTS, told, watch, why, withInput, type Way } from "./makeroom";

async function checkVerdict(page: Page, said: Why): Promise<void> {
  const verdict = page.getByTestId("verdict");
  await expect(verdict).toHaveAttribute("data-cause", said.verdict.cause);
  await expect(verdict).toHaveAttribute("data-certainty", said.verdict.certainty);
  await expect(page.getByTestId("summary")).toContainText(
    rounded(said.verdict.summary).replaceAll("`", "").slice(0, 190),
  );
  if (said.request !== null) await expect(page.getByTestId("asked")).toContainText(size(said.request.bytes));
  await page.getByTestId("why").click();
  await expect(page.getByTestId("details")).toContainText(said.verdict.summary.slice(0, 30));
  await page.keyboard.press("w");
  await expect(page.getByTestId("details")).toBeHidden();
}

interface Line {
  what: string;
  bytes: number;
  below: Line[];
}

const ofLine = (line: LedgerLine): Line => ({ what: line.what, bytes: line.bytes, below: line.lines.map(ofLine) });
const ofSite = (site: WhySite): Line => ({ what: site.site, bytes: site.bytes, below: site.calls.map(ofSite) });
const sum = (lines: Line[]) => lines.reduce((all, line) => all + line.bytes, 0);

/** Checks that the open rows, and the rows below each of them, have these names and figures. */
async function checkLines(page: Page, lines: Line[]): Promise<void> {
  const rows = page.getByTestId("account").locator("tr:not(.sub)");
  for (const [index, line] of lines.entries()) {
    await expect(rows.nth(index).locator("th")).toContainText(shorten(line.what, 120));
    await expect(rows.nth(index)).toHaveAttribute("data-bytes", String(line.bytes));
    await expect(rows.nth(index).getByTestId("account-bytes")).toHaveText(size(line.bytes));
    if (line.below.length === 0) continue;
    const before = await rows.count();
    await rows.nth(index).getByRole("button").click();
    await expect(page.getByTestId("account-up")).toBeVisible();
    await checkLines(page, line.below);
    await page.getByTestId("account-up").click();
    await expect(rows).toHaveCount(before);
  }
}

/** Checks each line of the account, down to the program's own lines. */
async function checkAccount(page: Page, said: Why): Promise<void> {
  if (said.ledger === null) return;
  const lines = said.ledger.lines.map(ofLine);
  const sites = said.sites.map(ofSite);
  const ofSites = sum(sites) + said.other_sites_bytes;
  const live = lines.find((line) => line.what.startsWith("live") && line.bytes === ofSites && line.below.length === 0);
  if (live !== undefined) live.below = sites;
  const rows = page.getByTestId("account").locator("tr:not(.sub)");
  await expect(rows).toHaveCount(lines.length + (said.ledger.unaccounted_bytes === 0 ? 0 : 1));
  // The parts of a line are below it, as `why` prints them.
  const parts = said.ledger.lines.flatMap((line) => line.lines.filter(({ bytes }) => bytes > 0));
  const subs = page.getByTestId("account").locator("tr.sub");
  await expect(subs).toHaveCount(parts.length);
  for (const [index, part] of parts.entries()) {
    await expect(subs.nth(index)).toHaveAttribute("data-what", part.what);
    await expect(subs.nth(index)).toHaveAttribute("data-bytes", String(part.bytes));
  }
  await checkLines(page, lines);
}

/** The cursor starts at the moment of the verdict, where live memory equals the account's, by whomever it was allocated. */
async function checkCursor(page: Page, said: Why): Promise<void> {
  const line = said.ledger?.lines.find(({ what }) => what.startsWith("live"));
  if (line === undefined) return;
  const live = size(holders(said).total || line.bytes);
  await expect(page.getByTestId("reading-a")).toContainText(`live ${live}`);
  await expect(page.getByTestId("moment-live")).toHaveText(live);
  await expect(page.getByTestId("flame-total")).toContainText(`${live} live at A`);
}

async function driveSeries(page: Page, events: number): Promise<void> {
  const plot = page.getByTestId("plot");
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  if (box === null) throw new Error("the series has no box");
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const hash = () => page.evaluate(() => location.hash);
  await page.mouse.move(x, y);
  // A plain wheel scrolls, with Ctrl it zooms.
  await page.mouse.wheel(0, 1);
  expect(await hash()).not.toContain("0.range=");
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -600);
  await page.keyboard.up("Control");
  if (events > 0) {
    await expect.poll(hash).toContain("0.range=");
    const near = await hash();
    await page.mouse.move(x - 80, y);
    await page.mouse.down();
    await page.mouse.move(x + 80, y, { steps: 4 });
    await page.mouse.up();
    if (events > 20) await expect.poll(hash).not.toBe(near);
    await page.getByTestId("whole-run").click();
  }
  await expect(page.getByTestId("whole-run")).toBeHidden();
  await expect(plot).toHaveAttribute("data-range", `0 ${events + 1}`);
  await page.mouse.click(x + 7, y);
  await expect(page.getByTestId("cursor-a")).toBeVisible();
  const placed = await page.getByTestId("cursor-a").getAttribute("aria-valuenow");
  await page.keyboard.press(",");
  if (Number(placed) > 0)
    await expect(page.getByTestId("cursor-a")).toHaveAttribute("aria-valuenow", String(Number(placed) - 1));
  await page.keyboard.press("e");
  await expect(page.getByText("Each column is one event.").or(page.getByText("has no more detail here"))).toBeVisible();
  await page.keyboard.press("0");
}

async function drivePictures(page: Page, way: Way): Promise<void> {
  await page.keyboard.press("4");
  const map = page.getByTestId("map");
  await expect(map).toBeFocused();
  if (Number(await map.getAttribute("data-segments")) > 0) {
    const segment = page.getByTestId("segment");
    // Keys that arrive while the map is loaded again select nothing.
    await expect(async () => {
      if (await segment.isHidden()) {
        await page.keyboard.press("ArrowRight");
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
      }
      await expect(segment).toBeVisible({ timeout: 3000 });
    }).toPass();
    await page.keyboard.press("Escape");
    await expect(page.getByTestId("segment")).toBeHidden();
  }
  await page.keyboard.press("5");
  await expect(page.getByTestId("flame")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Backspace");
  await page.keyboard.press("d");
  await expect(page.getByTestId("flame-total")).toContainText("from A to B");
  await expect(page.getByTestId("reading-b")).toBeVisible();
  await page.keyboard.press("x");
  await expect(page.getByTestId("reading-b")).toBeHidden();
  if (way === "served") await expect(page.getByTestId("trouble")).toBeHidden();
}

async function driveTables(page: Page, { sites, kind }: Device, way: Way): Promise<void> {
  await page.keyboard.press("6");
  await expect(page.getByTestId("site")).toHaveCount(Math.min(100, sites));
  if (sites > 0) {
    await page.getByRole("button", { name: "allocated in total" }).click();
    await expect(page.locator("th[aria-sort=descending]")).toHaveText(/allocated in total/);
    await page.keyboard.press("s");
    await expect(page.locator("tr.chosen")).toHaveCount(1);
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await expect(page.locator("#search")).toBeFocused();
    await page.keyboard.type("no such site");
    await expect(page.getByTestId("site")).toHaveCount(0);
    await page.locator("#search").fill("");
    await page.keyboard.press("Escape");
  }
  await page.keyboard.press("p");
  await page.keyboard.press("7");
  await expect(page.getByTestId("allocations-total")).toBeVisible();
  await page.keyboard.press("8");
  await expect(page.getByTestId("tab-whatif")).toHaveAttribute("aria-selected", "true");
  if (kind === "pinned") {
    await expect(page.getByText("Pinned host memory comes from the system")).toBeVisible();
    return;
  }
  if (way === "report") {
    await expect(page.getByText("This report has no what-if table")).toBeVisible();
    return;
  }
  await page.getByTestId("whatif-start").click();
  await expect(page.getByRole("progressbar").or(page.getByTestId("whatif")).first()).toBeVisible();
}

for (const way of ["served", "report"] as const)
  for (const input of inputs())
    test(`${input.name}, ${way}`, async ({ page }) => {
      const wrong = watch(page);
      await withInput(way, [input.path], page, async (url) => {
        const said = why(input);
        await openPage(page, url);
        await checkVerdict(page, said);
        const [one] = (await told(url)).inputs;
        const device = one?.devices[one.first_device];
        if (device === undefined) return;
        if (device.kind === "gpu") {
          await checkAccount(page, said);
          await checkCursor(page, said);
        }
        if (device.failures.length > 0)
          await expect(page.getByTestId("request")).toContainText(size(device.failures[0]?.size ?? 0));
        if (device.history === "none") return;
        await page.screenshot({ path: join(SCREENSHOTS, `${input.name}-${way}.png`), fullPage: true });
        await expectNoOverflow(page);
        await driveSeries(page, device.events);
        await drivePictures(page, way);
        await driveTables(page, device, way);
        await page.keyboard.press("p");
        await expect(page.getByTestId("reading-a")).toContainText(`live ${size(device.peak.live)}`);
        expect(wrong).toEqual([]);
      });
    });
