// Tests of how the page is used: zooming and going back, search, layers and axes, sharing, headlines, empty states, forced
// colors.
import { join } from "node:path";
import { expect, test } from "@playwright/test";
import { size } from "../src/format";
import { FOLDER, openPage, ROOT, SCREENSHOTS, watch, withInput } from "./makeroom";

const TRACE = join(ROOT, "traces", "oom_fragmented.pickle.gz");

test("Back undoes a zoom, Esc and a double-click show the whole run", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    const plot = page.getByTestId("plot");
    const whole = (await plot.getAttribute("data-range")) ?? "";
    const hash = () => page.evaluate(() => location.hash);
    const box = await plot.boundingBox();
    if (box === null) throw new Error("no chart");
    const drag = async () => {
      await page.mouse.move(box.x + box.width * 0.3, box.y + 60);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 5 });
      await page.mouse.up();
      await expect(plot).not.toHaveAttribute("data-range", whole);
      await expect.poll(hash).toContain("0.range=");
    };
    await drag();
    await page.goBack();
    await expect(plot).toHaveAttribute("data-range", whole);
    await drag();
    await page.keyboard.press("Escape");
    await expect(plot).toHaveAttribute("data-range", whole);
    await drag();
    await plot.dblclick({ position: { x: 200, y: 60 } });
    await expect(plot).toHaveAttribute("data-range", whole);
  });
});

test("a plain wheel over the chart scrolls the page", async ({ browser }) => {
  const page = await browser.newPage({ viewport: { width: 1280, height: 500 } });
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    const box = await page.getByTestId("plot").boundingBox();
    if (box === null) throw new Error("no chart");
    await page.mouse.move(box.x + 200, Math.min(box.y + 20, 250));
    await page.mouse.wheel(0, 200);
    await expect.poll(() => page.evaluate(() => scrollY)).toBeGreaterThan(50);
  });
});

test("search finds frames, sites and addresses in every view", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    await page.locator("#search").fill("adam");
    await expect(page.getByTestId("flame-found")).toContainText("in matching frames");
    await page.getByTestId("tab-sites").click();
    await expect(page.getByTestId("site").first()).toContainText("train_lm");
    await page.getByTestId("tab-space").click();
    await expect(page.getByTestId("space-found")).toContainText("in total");
    await page.getByTestId("tab-allocations").click();
    await expect(page.getByTestId("allocations-total")).toContainText("match");
    const address = (await page.getByTestId("allocation").first().locator("td").first().textContent()) ?? "";
    await page.locator("#search").fill(address.trim());
    await expect(page.getByTestId("allocation").first()).toContainText(address.trim());
    await page.getByTestId("allocation").first().getByRole("button", { name: address.trim() }).click();
    await expect(page.getByTestId("block-details")).toContainText("allocated by event");
  });
});

test("layers can be frames or files, the axis time, and the flame graph inverted", async ({ page }) => {
  const wrong = watch(page);
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    await page.getByTestId("by").selectOption("frame");
    await expect(page.locator(".legend")).toContainText("activations.py:66 forward");
    await page.getByTestId("by").selectOption("file");
    await expect(page.locator(".legend")).toContainText("activations.py");
    await page.getByTestId("x-axis").selectOption("time");
    await expect.poll(() => page.evaluate(() => location.hash)).toContain("x=time");
    const total = await page.getByTestId("flame-total").textContent();
    await page.getByTestId("inverted").check();
    await expect(page.getByTestId("flame-total")).toHaveText(total ?? "");
    await expect.poll(() => page.evaluate(() => location.hash)).toContain("flame=inverted");
    await page.reload();
    await expect(page.getByTestId("by")).toHaveValue("file");
    await expect(page.getByTestId("inverted")).toBeChecked();
    expect(wrong).toEqual([]);
  });
});

test("the page is saved as a report, and the picture and the link are copied", async ({ browser }) => {
  const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    const saved = page.waitForEvent("download");
    await page.getByTestId("save-report").click();
    const file = join(FOLDER, "saved.html");
    await (await saved).saveAs(file);
    const opened = await context.newPage();
    await opened.goto(`file://${file}`);
    await expect(opened.getByTestId("verdict")).toBeVisible();
    await expect(opened.getByTestId("better").or(opened.getByTestId("plot")).first()).toBeVisible();
    await opened.close();
    await page.getByTestId("copy-picture").click();
    await expect(page.getByTestId("copy-picture")).toHaveText("copied");
    const kinds = await page.evaluate(async () => (await navigator.clipboard.read()).flatMap(({ types }) => types));
    expect(kinds).toContain("image/png");
    await page.getByTestId("copy-link").click();
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain(url);
  });
});

test("a run without a failure says what a setting would save", async ({ page }) => {
  await withInput("served", [join(ROOT, "traces", "gpt2_varlen.pickle.gz")], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("headline")).toContainText("One setting saves", {
      timeout: 60_000,
    });
    await expect(page.getByTestId("better")).toContainText("instead of");
  });
});

test("an error message says what to record", async ({ page }) => {
  const wrong = watch(page);
  await withInput("served", [join(ROOT, "examples", "other-process.txt")], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("unrecorded")).toContainText("makeroom run --");
    expect(wrong).toEqual([]);
  });
});

for (const colorScheme of ["light", "dark"] as const)
  test(`forced colors keep bars and swatches, ${colorScheme}`, async ({ browser }) => {
    const page = await browser.newPage({ forcedColors: "active", colorScheme });
    await withInput("served", [TRACE], page, async (url) => {
      await openPage(page, url);
      const shown = (selector: string) =>
        page
          .locator(selector)
          .first()
          .evaluate((element) => getComputedStyle(element).backgroundColor);
      await expect(page.locator(".stack .part").first()).toBeVisible();
      expect(await shown(".stack .part")).not.toBe(await shown("body"));
      expect(await shown(".legend .layer .swatch")).not.toBe(await shown("body"));
      await page.screenshot({ path: join(SCREENSHOTS, `forced-${colorScheme}.png`) });
    });
  });

test("two inputs draw their difference, and the largest changes are those of the series", async ({ page }) => {
  const wrong = watch(page);
  const other = join(ROOT, "traces", "oom_fragmented-expandable.pickle.gz");
  await withInput("served", [TRACE, other], page, async (url) => {
    await openPage(page, url);
    const chart = page.getByTestId("difference-chart");
    await expect(chart.locator("canvas")).toBeVisible();
    const told = page.getByTestId("difference-extremes");
    await expect(told).toContainText("less at event");
    const at = Number(/less at event ([\d\u202f]+)/.exec((await told.textContent()) ?? "")?.[1]?.replace(/\D/g, ""));
    const reserved = await Promise.all(
      [0, 1].map(async (input) => {
        const answer = await fetch(new URL(`api/${input}/0/series/2/${Math.floor(at / 512 / 16)}`, url));
        const tile = (await answer.json()) as { most_reserved: number[]; first_event: number };
        return tile.most_reserved[Math.floor((at - tile.first_event) / 16)] ?? 0;
      }),
    );
    await expect(told).toContainText(`up to ${size((reserved[0] ?? 0) - (reserved[1] ?? 0))} less`);
    // One axis: it follows the zoom of the charts.
    const before = await told.textContent();
    await page.keyboard.press("e");
    await expect(told).not.toHaveText(before ?? "");
    expect(wrong).toEqual([]);
  });
});

test("where nothing is live, the flame graph says so and leads to the peak", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, `${url}#0.a=0`);
    const empty = page.getByTestId("flame-empty");
    await expect(empty).toContainText("Nothing was live");
    await empty.getByRole("button").click();
    await expect(page.getByTestId("flame-total")).toContainText("GiB live at A");
    await expect(empty).toBeHidden();
  });
});

test("if other processes hold the memory, the card lists them", async ({ page }) => {
  await withInput("served", [join(FOLDER, "recordings", "other-process.room")], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("foreign")).toContainText("This process held no memory");
    await expect(page.getByTestId("holder").first()).toContainText("other processes");
  });
});

test("the header names the GPU by its number if the recording has no name", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("facts")).toContainText("GPU 0");
  });
});

for (const [width, height] of [
  [1440, 900],
  [1024, 700],
] as const)
  test(`nothing in the cards overlaps, ${width} × ${height}`, async ({ browser }) => {
    const other = join(ROOT, "traces", "oom_fragmented-expandable.pickle.gz");
    for (const inputs of [[TRACE], [TRACE, other]]) {
      const page = await browser.newPage({ viewport: { width, height } });
      await withInput("served", inputs, page, async (url) => {
        await openPage(page, url);
        await expect(page.locator(".card td, .card th").first()).toBeVisible();
        if (inputs.length > 1) await expect(page.getByTestId("line-change").first()).toBeVisible();
        const boxes = await page.locator(".card :is(td, th, h3 > *, p, summary)").evaluateAll((all) =>
          all
            .filter((one) => one.checkVisibility())
            .map((one) => ({ text: one.textContent, box: one.getBoundingClientRect() }))
            .filter(({ box }) => box.width > 0 && box.height > 0)
            .map(({ text, box: { left, right, top, bottom } }) => ({ text, left, right, top, bottom })),
        );
        for (const [index, one] of boxes.entries())
          for (const two of boxes.slice(index + 1)) {
            const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
            const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
            expect(wide > 2 && high > 2, `"${one.text}" covers "${two.text}"`).toBe(false);
          }
      });
    }
  });

test("a link to a site that the recording does not have selects nothing", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, `${url}#0.site=1999`);
    await expect(page.locator(".legend .layer").first()).toBeVisible();
    await expect.poll(() => page.evaluate(() => location.hash)).not.toContain("site=");
  });
});

test("without a chart, the panel is open in a low window too", async ({ browser }) => {
  const page = await browser.newPage({ viewport: { width: 1024, height: 700 } });
  await withInput("served", [join(ROOT, "traces", "jax_memory.prof.gz")], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("flame-total")).toContainText("MiB live");
  });
});
