// The first screen answers on its own: whether the run is healthy, what grew, what to do; nothing of it is cut off, broken or
// invisible, at 1440 × 900 and 1024 × 700, in dark mode and with forced colors.
import { join } from "node:path";
import { expect, test, type Page } from "@playwright/test";
import { rounded } from "../src/format";
import { DARK, LIGHT, luminance } from "../src/palette";
import type { Why } from "../src/types";
import { openPage, output, ROOT, withInput } from "./makeroom";

const trace = (name: string) => join(ROOT, "traces", name);
const why = (path: string) => output("why", "--json", path) as Why;

const VARLEN = trace("gpt2_varlen.pickle.gz");
const FRAGMENTED = trace("oom_fragmented.pickle.gz");
const LIMITED = trace("fit/gpt_61.room.gz");
const GROWING = trace("kinds/adamw-features.room.gz");
const HEALTHY = trace("kinds/adamw-long.pickle.gz");
const STREAMS = trace("streams.pickle.gz");
const ALL = [VARLEN, FRAGMENTED, LIMITED, GROWING, HEALTHY, STREAMS];
const name = (path: string) => path.replace(/.*\//, "").replace(/\..*/, "");

/** The page once the replay is done and the chart has its final height. */
async function settled(page: Page, url: string): Promise<void> {
  await openPage(page, url);
  await expect(page.locator(".legend .layer .number").first()).toHaveText(/\d/);
  await expect(page.locator(".fix")).not.toContainText("Replaying");
  await page.waitForTimeout(600);
}

/** Whether an element is above the panel and in the window. */
async function isInView(page: Page, selector: string): Promise<boolean> {
  return page
    .locator(selector)
    .first()
    .evaluate((element) => {
      const { top, bottom, height } = element.getBoundingClientRect();
      const edge = document.querySelector(".dock")?.getBoundingClientRect().top ?? innerHeight;
      return height > 0 && top >= 0 && bottom <= edge + 1;
    });
}

for (const path of ALL)
  test(`at 1440 × 900, ${name(path)} has its word, its growth and no scroll bar`, async ({ browser }) => {
    const said = why(path);
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    await withInput("report", [path], page, async (url) => {
      await settled(page, url);
      await expect(page.locator(".pill")).toHaveText(new RegExp(`^${said.health.state}`, "i"));
      // Growth is in the headline if it decides, else in the card.
      const isHeadline = said.health.state === "growing";
      const growth = isHeadline ? ".verdict h2" : "[data-testid=growth]";
      expect(said.growth_summary).not.toBeNull();
      await expect(page.locator(growth)).toContainText(rounded(said.growth_summary ?? ""));
      for (const part of [".pill", growth, ".fix .fixrow, .fix p", ".timeline .note"])
        expect(await isInView(page, part), part).toBe(true);
      const [content, height] = await page.evaluate(
        () => [document.documentElement.scrollHeight, innerHeight] as const,
      );
      expect(content).toBeLessThanOrEqual(height);
    });
  });

for (const path of ALL)
  test(`at 1024 × 700, ${name(path)} keeps its notes, and its commands break between words`, async ({ browser }) => {
    const page = await browser.newPage({ viewport: { width: 1024, height: 700 } });
    await withInput("report", [path], page, async (url) => {
      await settled(page, url);
      for (const line of (why(path).ledger?.lines ?? []).filter(({ note }) => note !== null))
        await expect(page.locator(`tr[data-what="${line.what}"] .narrow-only`)).toBeVisible();
      const broken = await page.evaluate(() =>
        [...document.querySelectorAll(".fix > .fixrow .command code")].flatMap((code) => {
          // A piece that is on two lines is broken inside.
          const pieces = [...code.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
          return pieces.flatMap((piece) =>
            [...(piece.textContent ?? "").matchAll(/\S+/g)].flatMap(({ 0: word, index }) => {
              const range = document.createRange();
              range.setStart(piece, index);
              range.setEnd(piece, index + word.length);
              return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1 ? [word] : [];
            }),
          );
        }),
      );
      expect(broken).toEqual([]);
    });
  });

test("the legend has the order of the card", async ({ page }) => {
  await withInput("served", [FRAGMENTED], page, async (url) => {
    await settled(page, url);
    const holders = await page.getByTestId("holder").locator("th").allTextContents();
    const layers = await page.locator(".legend .layer .name").allTextContents();
    expect(holders.length).toBeGreaterThan(3);
    expect(layers.slice(0, holders.length)).toEqual(holders);
    const numbers = await page.locator(".legend .layer .number").allTextContents();
    expect(numbers).toEqual(numbers.map((_, index) => String(index + 1)));
  });
});

test("a limit that the snapshot does not contain is named, and the setting that may fit is drawn", async ({ page }) => {
  const limit = why(FRAGMENTED).hidden_limit;
  expect(limit?.least_bytes).toBeLessThan(6 * 2 ** 30);
  expect(limit?.most_bytes).toBeGreaterThan(6 * 2 ** 30);
  await withInput("served", [FRAGMENTED], page, async (url) => {
    await settled(page, url);
    await expect(page.getByTestId("summary")).toContainText("a limit between 5.77 GiB and 6.04 GiB");
    await expect(page.locator(".fix .command code").first()).toContainText("expandable_segments:True");
    await expect(page.getByTestId("better")).toContainText("dashed line");
    await expect(page.locator(".legend .dashes")).toBeVisible();
  });
});

test("growth has its line as the first fix", async ({ page }) => {
  await withInput("served", [GROWING], page, async (url) => {
    await settled(page, url);
    await expect(page.locator(".fix .fixrow").first()).toContainText("allocated at tmp/kinds.py:69 Gpt.forward");
    await expect(page.getByTestId("headline")).toContainText("1 MiB per step, mostly at tmp/kinds.py:69");
  });
});

test("a healthy run has nothing to fix", async ({ page }) => {
  await withInput("served", [HEALTHY], page, async (url) => {
    await settled(page, url);
    await expect(page.locator(".fix h3")).toHaveText("Fix");
    await expect(page.locator(".fix")).toContainText("Nothing to fix.");
    await expect(page.getByText("--card", { exact: false }).first()).toBeHidden();
  });
});

test("forced colors keep the dashes of the replay in the legend", async ({ browser }) => {
  for (const colorScheme of ["light", "dark"] as const) {
    const page = await browser.newPage({ forcedColors: "active", colorScheme, viewport: { width: 1440, height: 900 } });
    await withInput("served", [VARLEN], page, async (url) => {
      await settled(page, url);
      await expect(page.getByTestId("better")).toBeVisible({ timeout: 60_000 });
      const look = await page.locator(".legend .dashes").evaluate((element) => {
        const { borderTopStyle, borderTopColor, outlineStyle } = getComputedStyle(element);
        return { borderTopStyle, borderTopColor, outlineStyle, back: getComputedStyle(document.body).backgroundColor };
      });
      expect(look.borderTopStyle).toBe("dashed");
      expect(look.outlineStyle).toBe("none");
      expect(look.borderTopColor).not.toBe(look.back);
    });
  }
});

test("memory without a stack stands out from the panel, also in the dark", () => {
  for (const colors of [LIGHT, DARK]) {
    const [one = 0, other = 0] = [luminance(colors.unknown), luminance(colors.panel)].sort((a, b) => b - a);
    expect((one + 0.05) / (other + 0.05), colors.dark ? "dark" : "light").toBeGreaterThan(colors.dark ? 3 : 1.5);
  }
});
