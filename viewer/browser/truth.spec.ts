// Tests that the page does not contradict itself: limits, labels, advice and colors mean the same everywhere, and nothing
// that is to be read is cut, covered or lost in narrow windows and forced colors.
import { join } from "node:path";
import { expect, test, type Page } from "@playwright/test";
import { size } from "../src/format";
import type { Device, Why } from "../src/types";
import { FOLDER, openPage, output, ROOT, told, watch, withInput } from "./makeroom";

const trace = (...name: string[]) => join(ROOT, "traces", ...name);
const LIMITED = trace("fit", "varied_57.room.gz");
const REPEATED = trace("fit", "conv_2900.room.gz");
const GROWING = trace("kinds", "growing.room.gz");
const STREAMS = trace("streams.pickle.gz");

const why = (path: string) => output("why", "--json", path) as Why;

async function deviceOf(url: string): Promise<Device> {
  const device = (await told(url)).inputs[0]?.devices[0];
  if (device === undefined) throw new Error("no device");
  return device;
}

/** The labels in the chart, once the sites are loaded. */
async function labels(page: Page): Promise<string> {
  await expect(page.locator(".legend .layer .number").first()).toHaveText(/\d/);
  await page.waitForTimeout(300);
  return (await page.locator(".uplot").getAttribute("data-labels")) ?? "";
}

for (const path of [LIMITED, REPEATED])
  test(`under a limit, only what it counts is below live memory: ${path.replace(/.*\//, "")}`, async ({ page }) => {
    const contexts = why(path).ledger?.lines.find(({ what }) => what === "context and code")?.bytes ?? 0;
    expect(contexts).toBeGreaterThan(0);
    await withInput("served", [path], page, async (url) => {
      await openPage(page, url);
      const { capacity } = await deviceOf(url);
      expect(capacity.is_limit).toBe(true);
      for (const [, bytes, others] of capacity.base) expect([bytes, others]).toEqual([contexts, 0]);
      await expect(page.locator(".legend")).toContainText("context and code");
      await expect(page.locator(".legend")).not.toContainText("other processes");
    });
  });

test("failed requests that would cover each other are drawn as one, with their number", async ({ page }) => {
  await withInput("served", [REPEATED], page, async (url) => {
    await openPage(page, url);
    const { failures, failures_total: total } = await deviceOf(url);
    expect(total).toBeGreaterThan(10);
    const found = (await labels(page)).split("\n").filter((label) => /failed/.test(label));
    const counted = found.map((label) => Number(/^(\d+) requests failed/.exec(label)?.[1] ?? 1));
    expect(counted.reduce((sum, number) => sum + number, 0)).toBeLessThanOrEqual(total);
    expect(Math.max(...counted)).toBeGreaterThan(10);
    expect(found.join("\n")).toContain(`requests failed, the first: ${size(failures[0]?.size ?? 0)}`);
  });
});

test("labels say what the axis includes, and name the moment of unused memory", async ({ page }) => {
  await withInput("served", [GROWING], page, async (url) => {
    await openPage(page, url);
    const device = await deviceOf(url);
    const base = device.capacity.base[0]?.[1] ?? 0;
    expect(await labels(page)).toContain(`peak ${size(device.peak.live)} live + ${size(base)} context`);
  });
});

test("unused memory has one figure: in the headline, the card and the chart", async ({ page }) => {
  await withInput("served", [LIMITED], page, async (url) => {
    await openPage(page, url);
    const { unused_at_start: unused } = await deviceOf(url);
    expect(await labels(page)).toMatch(new RegExp(`(?:unused at the failure:;?|, at the failure) ${size(unused)}`));
    await expect(page.getByTestId("summary")).toContainText(size(unused));
    await expect(page.locator("[data-testid=account] tr[data-what^=unused]").first()).toHaveAttribute(
      "data-bytes",
      String(unused),
    );
  });
});

test("a setting that costs memory is not said to save any", async ({ page }) => {
  await withInput("served", [GROWING], page, async (url) => {
    await openPage(page, url);
    const { peak_reserved: most } = await deviceOf(url);
    await expect(page.getByTestId("no-better")).toContainText(/would not help: .* instead of /);
    await expect(page.getByTestId("no-better")).toContainText(`instead of ${size(most.reserved)}`);
    // The headline has the figures of the account.
    const parts = why(GROWING).ledger?.lines.filter(({ what }) => ["live tensors", "cuBLAS"].includes(what)) ?? [];
    const live = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    expect(live).toBeGreaterThan(0);
    await expect(page.getByTestId("verdict")).toContainText(`at the peak, ${size(live)} was live`);
  });
});

test("memory that waits for a stream is in the headline and in the breakdown", async ({ page }) => {
  const parts = why(STREAMS).ledger?.lines.flatMap((line) => line.lines) ?? [];
  const waiting = parts.find(({ what }) => what.includes("waiting for a stream"))?.bytes ?? 0;
  expect(waiting).toBeGreaterThan(0);
  await withInput("served", [STREAMS], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("verdict")).toContainText(`${size(waiting)} of `);
    await expect(page.locator("tr[data-what='freed, waiting for a stream']")).toHaveAttribute(
      "data-bytes",
      String(waiting),
    );
    await expect(page.getByTestId("growth")).toContainText("but not steadily");
    // What to do belongs to the verdict; the size of the GPU is another question.
    await expect(page.locator(".fix .fixrow").first()).toContainText("record_stream");
    // The remark on a command is not part of what is copied.
    await expect(page.locator(".command code", { hasText: "--card" })).not.toContainText("(");
    await expect(page.getByTestId("remark").first()).toContainText("(or ");
  });
});

for (const [width, height] of [
  [1440, 900],
  [1024, 700],
] as const)
  for (const path of [GROWING, LIMITED, REPEATED, STREAMS])
    test(`the panel cuts no line: ${path.replace(/.*\//, "")}, ${width} × ${height}`, async ({ browser }) => {
      const page = await browser.newPage({ viewport: { width, height } });
      await withInput("served", [path], page, async (url) => {
        await openPage(page, url);
        await labels(page);
        const cut = () =>
          page.evaluate(() => {
            const edge = document.querySelector(".dock")?.getBoundingClientRect().top ?? 0;
            const lines = [...document.querySelectorAll(".legend li, .timeline .note")];
            return lines
              .filter((line) => {
                const { top, bottom } = line.getBoundingClientRect();
                return top < edge - 1 && bottom > edge + 1;
              })
              .map((line) => line.textContent);
          });
        await expect.poll(cut).toEqual([]);
      });
    });

test("at 1024 pixels, the card keeps its bars and its moment", async ({ browser }) => {
  const page = await browser.newPage({ viewport: { width: 1024, height: 700 } });
  await withInput("served", [LIMITED], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("holders")).toContainText("at the failure");
    const bar = await page.getByTestId("holder").first().locator(".bar").boundingBox();
    expect(bar?.width).toBeGreaterThan(15);
  });
});

test("a thread is not a place, code has no backticks, and one fix has no order", async ({ page }) => {
  await withInput("served", [LIMITED], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("asked")).toContainText("by thread");
    await expect(page.locator(".account h3")).toContainText("with --limit");
    await expect(page.locator("main")).not.toContainText("`");
    await expect(page.locator(".fix h3")).toHaveText("Most effective fix");
  });
});

test("other processes have their own layer, and the flag of a cursor does not hide the zero", async ({ page }) => {
  await withInput("served", [join(FOLDER, "recordings", "other-process.room")], page, async (url) => {
    await openPage(page, url);
    const legend = page.locator(".legend .kind");
    await expect(legend.filter({ hasText: "other processes" })).toHaveCount(1);
    await expect(legend.filter({ hasText: "context and code" })).toHaveCount(1);
    const others = why(join(FOLDER, "recordings", "other-process.room")).ledger?.lines;
    const bytes = others?.find(({ what }) => what === "other processes")?.bytes;
    await expect(page.getByTestId("moment-others")).toHaveAttribute("data-bytes", String(bytes));
    const [flag, plot] = await Promise.all([
      page.locator(".flag").boundingBox(),
      page.getByTestId("plot").boundingBox(),
    ]);
    expect(flag?.x).toBeGreaterThanOrEqual((plot?.x ?? Infinity) - 1);
  });
});

test("forced colors keep the look of links, and the placeholder is not an error", async ({ browser }) => {
  const page = await browser.newPage({ forcedColors: "active", viewport: { width: 1440, height: 900 } });
  const wrong = watch(page);
  await withInput("served", [LIMITED], page, async (url) => {
    await openPage(page, url);
    const looks = await page.evaluate(() => {
      const of = (selector: string, pseudo?: string) => {
        const element = document.querySelector(selector);
        if (element === null) return { color: "", line: "" };
        const { color, textDecorationLine: line } = getComputedStyle(element, pseudo);
        return { color, line };
      };
      return { link: of("[data-testid=why]"), text: of("body"), placeholder: of("#search", "::placeholder") };
    });
    expect(looks.link.line).toBe("underline");
    expect(looks.link.color).not.toBe(looks.text.color);
    expect(looks.placeholder.color).toBe(looks.text.color);
    expect(wrong).toEqual([]);
  });
});
