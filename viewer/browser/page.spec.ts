// Tests of the page as a whole: widths and colors, the URL, two inputs, hostile names, a file that changes, the what-if
// table, a server that stops.
import { execFileSync } from "node:child_process";
import { appendFileSync, copyFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "@playwright/test";
import { size } from "../src/format";
import { KEYS } from "../src/keys";
import type { WhatIfRow } from "../src/types";
import {
  expectNoOverflow,
  FOLDER,
  MAKEROOM,
  openPage,
  report,
  ROOT,
  SCREENSHOTS,
  serve,
  told,
  watch,
  withInput,
} from "./makeroom";

const TRACE = join(ROOT, "traces", "oom_fragmented.pickle.gz");
const AFTER = join(ROOT, "traces", "oom_fragmented-expandable.pickle.gz");
const HOSTILE = join(FOLDER, "hostile.pickle");

for (const width of [1000, 2500])
  for (const colorScheme of ["light", "dark"] as const)
    test(`${width} pixels wide, ${colorScheme}`, async ({ browser }) => {
      const page = await browser.newPage({ viewport: { width, height: 1000 }, colorScheme });
      const wrong = watch(page);
      await withInput("served", [TRACE], page, async (url) => {
        await openPage(page, url);
        await expect(page.locator("html")).toHaveAttribute("data-theme", colorScheme);
        await page.keyboard.press("4");
        await expect(page.getByTestId("map")).toHaveAttribute("data-sites", "6");
        await page.keyboard.press("5");
        await expectNoOverflow(page);
        await page.screenshot({
          path: join(SCREENSHOTS, `page-${width}-${colorScheme}.png`),
          fullPage: true,
        });
        await page.keyboard.press("t");
        await expect(page.locator("html")).toHaveAttribute("data-theme", colorScheme === "light" ? "dark" : "light");
        await expect.poll(() => page.evaluate(() => location.hash)).toContain("theme=");
        await page.reload();
        await expect(page.locator("html")).toHaveAttribute("data-theme", colorScheme === "light" ? "dark" : "light");
        expect(wrong).toEqual([]);
      });
    });

test("the address brings back what was shown", async ({ page, context }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    // The key for sites has no effect before the sites are loaded.
    await expect(page.locator(".legend .layer .number").first()).toHaveText(/\d/);
    for (const key of ["+", "+", "b", "p", "d", "s", "s", "7"]) await page.keyboard.press(key);
    await expect(page.locator(".legend [aria-pressed=true]")).toHaveCount(1);
    await page.locator("#search").fill("train");
    await expect.poll(() => page.evaluate(() => location.hash)).toContain("search=train");
    const other = await context.newPage();
    await other.goto(page.url());
    for (const id of ["reading-a", "reading-b", "allocations-total"])
      await expect(other.getByTestId(id)).toHaveText((await page.getByTestId(id).textContent()) ?? "");
    await expect(other.locator("#search")).toHaveValue("train");
    await expect(other.locator(".legend [aria-pressed=true]")).toHaveCount(1);
    await other.close();
  });
});

test("a dragged cursor shows the memory on its way", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    const cursor = page.getByTestId("cursor-a");
    await cursor.scrollIntoViewIfNeeded();
    const box = await cursor.boundingBox();
    if (box === null) throw new Error("no cursor");
    const seen = new Set<string | null>();
    await page.mouse.move(box.x + 5, box.y + 100);
    await page.mouse.down();
    for (let step = 1; step <= 12; step += 1) {
      await page.mouse.move(box.x + 5 - step * 40, box.y + 100);
      await page.waitForTimeout(40);
      seen.add(await page.getByTestId("moment").getAttribute("data-event"));
    }
    await page.mouse.up();
    expect(seen.size).toBeGreaterThan(4);
    const end = await cursor.getAttribute("aria-valuenow");
    await expect(page.getByTestId("moment")).toHaveAttribute("data-event", end ?? "");
  });
});

test("a site chosen in the table is chosen everywhere", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    await page.keyboard.press("6");
    await page.getByTestId("site").nth(2).getByRole("button").first().click();
    await expect(page.locator(".legend [aria-pressed=true]")).toContainText("3");
    await page.getByTestId("site").nth(2).getByRole("button", { name: "list" }).click();
    await expect(page.getByTestId("allocation").first()).toHaveClass("chosen");
    const told = (await page.getByTestId("allocations-total").textContent()) ?? "";
    expect(told).toContain("match");
    await page.getByTestId("allocation").first().getByRole("button", { name: "stack" }).click();
    await expect(page.getByTestId("details")).toBeVisible();
    await expect(page.getByTestId("details")).toContainText("workloads.py");
    await page.keyboard.press("Escape");
    await expect(page.getByTestId("details")).toBeHidden();
  });
});

test("every key is in the help, and the help opens and closes by key", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    await page.keyboard.press("?");
    const help = page.getByTestId("help");
    await expect(help).toBeVisible();
    for (const key of KEYS) await expect(help.getByText(key.does, { exact: true })).toBeVisible();
    await page.keyboard.press("Escape");
    await expect(help).toBeHidden();
    // Every control is reachable by Tab; the last ones are the tables, after the buttons of the header.
    const reached = new Set<string>();
    for (let step = 0; step < 60; step += 1) {
      await page.keyboard.press("Tab");
      reached.add(await page.evaluate(() => (document.activeElement as HTMLElement | null)?.dataset["testid"] ?? ""));
    }
    for (const id of ["theme", "keys", "save-report", "reading-a", "cursor-a", "flame", "search", "tab-flame"])
      expect([...reached]).toContain(id);
  });
});

test("a segment is looked at closely by keys", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    await page.keyboard.press("4");
    await expect(page.getByTestId("map")).toHaveAttribute("data-segments", /[1-9]/);
    await expect(page.getByTestId("map")).toBeFocused();
    for (const key of ["ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    const strip = page.getByTestId("strip");
    await expect(strip).toHaveAttribute("data-view", "0 1");
    await page.keyboard.press("Shift+Tab");
    while (!(await strip.evaluate((element) => element === document.activeElement)))
      await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("ArrowRight");
    await expect(page.getByTestId("segment").getByRole("status")).toContainText("at 0x");
    const first = await page.getByTestId("segment").getByRole("status").textContent();
    await page.keyboard.press("ArrowRight");
    await expect(page.getByTestId("segment").getByRole("status")).not.toHaveText(first ?? "");
    await page.keyboard.press("+");
    await expect(strip).not.toHaveAttribute("data-view", "0 1");
    await page.keyboard.press("-");
    await expect(strip).toHaveAttribute("data-view", "0 1");
    await page.keyboard.press("Escape");
    await expect(strip).toBeHidden();
  });
});

for (const [name, given] of [
  ["one input", [TRACE]],
  ["two inputs", [TRACE, AFTER]],
] as const)
  test(`a window as wide as a telephone, ${name}`, async ({ browser }) => {
    const page = await browser.newPage({ viewport: { width: 360, height: 700 } });
    const wrong = watch(page);
    await withInput("served", [...given], page, async (url) => {
      await openPage(page, url);
      for (const tab of ["flame", "space", "sites", "allocations", "whatif"]) {
        await page.getByTestId(`tab-${tab}`).click();
        await expectNoOverflow(page);
      }
      await page.keyboard.press("?");
      await expect(page.getByTestId("help")).toBeVisible();
      await expectNoOverflow(page);
      await page.keyboard.press("Escape");
      await expect(page.getByTestId("help")).toBeHidden();
      // Words are not broken into letters: no row is higher than a few lines.
      for (const row of await page.locator("tr").all())
        expect((await row.boundingBox())?.height ?? 0, (await row.textContent()) ?? "").toBeLessThan(130);
      await page.screenshot({ path: join(SCREENSHOTS, `narrow-${given.length}.png`), fullPage: true });
      expect(wrong).toEqual([]);
    });
  });

for (const way of ["served", "report"] as const)
  for (const odd of ["nothing", "one-event", "refusal", "no-history", "devices", "deep"])
    test(`every key on a recording of ${odd.replace("-", " ")}, ${way}`, async ({ page }) => {
      const wrong = watch(page);
      await withInput(way, [join(FOLDER, `odd-${odd}.pickle`)], page, async (url) => {
        await openPage(page, url);
        for (const { keys } of KEYS.filter(({ keys }) => !keys.includes("?")))
          for (const key of keys) await page.keyboard.press(key);
        for (const key of ["Escape", "4", "ArrowRight", "Enter", "5", "ArrowDown", "Enter", "Escape", "g", "g", "0"])
          await page.keyboard.press(key);
        await expect(page.getByTestId("verdict")).toBeVisible();
        await expect(page.getByTestId("trouble")).toBeHidden();
        await expectNoOverflow(page);
        expect(wrong).toEqual([]);
      });
    });

test("two inputs show their difference, then both charts on one axis", async ({ browser }) => {
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  const wrong = watch(page);
  await withInput("served", [TRACE, AFTER], page, async (url) => {
    await openPage(page, url);
    const [before, after] = (await told(url)).inputs;
    const table = page.getByRole("region", { name: "both inputs" });
    await expect(page.getByTestId("difference")).toContainText("oom_fragmented-expandable");
    for (const input of [before, after]) {
      await expect(table).toContainText(size(input?.devices[0]?.peak.live ?? 0));
      await expect(table).toContainText(size(input?.devices[0]?.peak_reserved.reserved ?? 0));
    }
    await expect(page.getByTestId("line-change").first()).toBeVisible();
    // Below each other, with one axis and one cursor.
    const one = await page.getByTestId("pane-0").getByTestId("plot").boundingBox();
    const other = await page.getByTestId("pane-1").getByTestId("plot").boundingBox();
    expect(other?.x).toBe(one?.x);
    expect(other?.width).toBe(one?.width);
    expect(other?.y).toBeGreaterThan((one?.y ?? 0) + (one?.height ?? 0));
    await page.keyboard.press("+");
    await page.keyboard.press(",");
    const range = await page.getByTestId("pane-0").getByTestId("plot").getAttribute("data-range");
    await expect(page.getByTestId("pane-1").getByTestId("plot")).toHaveAttribute("data-range", range ?? "");
    const [left, right] = await Promise.all(
      ["pane-0", "pane-1"].map((pane) => page.getByTestId(pane).getByTestId("cursor-a").getAttribute("aria-valuenow")),
    );
    expect(left).toBe(right);
    await page.keyboard.press("p");
    await expect(page.getByTestId("pane-0").getByTestId("reading-a")).toContainText(
      size(before?.devices[0]?.peak.live ?? 0),
    );
    await expectNoOverflow(page);
    await page.screenshot({ path: join(SCREENSHOTS, "two-inputs.png"), fullPage: true });
    expect(wrong).toEqual([]);
  });
});

for (const way of ["served", "report"] as const)
  test(`hostile names are text, ${way}`, async ({ page }) => {
    const wrong = watch(page);
    await withInput(way, [HOSTILE], page, async (url) => {
      await openPage(page, url);
      for (const key of ["4", "ArrowRight", "Enter", "5", "ArrowDown", "6"]) await page.keyboard.press(key);
      await expect(page.getByTestId("dock").getByTestId("site").first()).toBeVisible();
      await expect(page.getByTestId("site").filter({ hasText: "window.hacked = 1" }).first()).toBeVisible();
      for (const [index, row] of (await page.getByTestId("site").all()).entries())
        expect((await row.textContent())?.length, `row ${index}`).toBeLessThan(1000);
      await page.getByTestId("whole").first().click();
      await expect(page.getByTestId("details")).toBeVisible();
      await expect(page.getByTestId("details")).toContainText("xxxxxxxxxx");
      await page.keyboard.press("Escape");
      await page.keyboard.press("7");
      await expect(page.getByTestId("allocation").first()).toBeVisible();
      expect(await page.evaluate(() => "hacked" in window)).toBe(false);
      expect(await page.locator("main :is(script, img, svg, iframe, b b)").count()).toBe(0);
      await expectNoOverflow(page);
      await page.screenshot({ path: join(SCREENSHOTS, `hostile-${way}.png`) });
      expect(wrong).toEqual([]);
    });
  });

test("the what-if table is replay's, and comes with progress", async ({ page }) => {
  const recording = join(ROOT, "traces", "seed004.pickle.gz");
  const { runs } = JSON.parse(execFileSync(MAKEROOM, ["replay", "--json", recording], { encoding: "utf8" })) as {
    runs: WhatIfRow[];
  };
  await withInput("served", [recording], page, async (url) => {
    await openPage(page, url);
    await page.keyboard.press("8");
    await page.getByTestId("whatif-start").click();
    const rows = page.getByTestId("whatif");
    await expect(rows).toHaveCount(runs.length, { timeout: 30_000 });
    for (const run of runs) {
      const row = rows.filter({ has: page.getByRole("rowheader", { name: run.allocator, exact: false }) }).first();
      await expect(row).toContainText(size(run.peak_reserved_bytes));
    }
  });
  expect(runs.length).toBeGreaterThan(2);
});

test("a file that grows is noticed and read again", async ({ page }) => {
  const copy = join(FOLDER, "growing.pickle.gz");
  copyFileSync(join(ROOT, "traces", "seed001.pickle.gz"), copy);
  await withInput("served", [copy], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("changed")).toBeHidden();
    copyFileSync(join(ROOT, "traces", "seed004.pickle.gz"), copy);
    await page.evaluate(() => dispatchEvent(new Event("focus")));
    await expect(page.getByTestId("changed")).toBeVisible();
    await page.getByRole("button", { name: "Reload it" }).click();
    await expect(page.getByTestId("summary")).toContainText("223 MiB");
    await expect(page.getByTestId("changed")).toBeHidden();
    appendFileSync(copy, "no longer a recording");
    await page.evaluate(() => dispatchEvent(new Event("focus")));
    await expect(page.getByTestId("changed")).toBeVisible();
  });
});

test("two pages of one server never mix what was read before and after", async ({ page, context }) => {
  const copy = join(FOLDER, "read-twice.pickle.gz");
  copyFileSync(TRACE, copy);
  await withInput("served", [copy], page, async (url) => {
    const other = await context.newPage();
    await Promise.all([openPage(page, url), openPage(other, url)]);
    await expect(other.getByTestId("asked")).toContainText("865 MiB");
    copyFileSync(join(ROOT, "traces", "seed004.pickle.gz"), copy);
    await page.evaluate(() => dispatchEvent(new Event("focus")));
    await page.getByRole("button", { name: "Reload it" }).click();
    await expect(page.getByTestId("summary")).toContainText("223 MiB");
    await other.keyboard.press("p");
    await expect(other.getByTestId("summary")).toContainText("223 MiB");
    await expect(other.getByTestId("trouble")).toBeHidden();
  });
});

test("a server that is gone is said", async ({ page }) => {
  const served = await serve(TRACE);
  await openPage(page, served.url);
  served.end();
  await page.evaluate(() => dispatchEvent(new Event("focus")));
  await expect(page.getByTestId("trouble")).toContainText("does not respond");
});

test("two viewers at once do not disturb each other", async ({ page, context }) => {
  const [one, other] = await Promise.all([serve(TRACE), serve(join(ROOT, "traces", "seed004.pickle.gz"))]);
  const second = await context.newPage();
  try {
    await Promise.all([openPage(page, one.url), openPage(second, other.url)]);
    await expect(page.getByTestId("asked")).toContainText("865 MiB");
    await expect(second.getByTestId("summary")).toContainText("223 MiB");
  } finally {
    one.end();
    other.end();
  }
});

test("the page and reports keep to their sizes", () => {
  expect(statSync(join(ROOT, "viewer", "dist", "index.html")).size).toBeLessThan(300_000);
  const file = new URL(report("size", TRACE));
  expect(statSync(file).size).toBeLessThan(10_000_000);
  expect(basename(file.pathname)).toBe("size.html");
});
