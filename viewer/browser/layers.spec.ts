// Tests of what depends on the choice of layers, on the GPU, and on the run itself: reports and the flame graph have the
// chosen layers, two inputs report a leak, the table of allocators shows the run as it was recorded.
import { join } from "node:path";
import { expect, test } from "@playwright/test";
import { count, rounded, size } from "../src/format";
import { FOLDER, openPage, output, report, ROOT, serve, told, watch, withInput } from "./makeroom";

const TRACE = join(ROOT, "traces", "oom_fragmented.pickle.gz");
const [PLAIN, LEAKING] = ["adamw", "adamw-features"].map((name) =>
  join(ROOT, "traces", "kinds", `${name}.pickle.gz`),
) as [string, string];

test("two inputs report a leak as makeroom diff does, and where the shorter run ends", async ({ page }) => {
  const wrong = watch(page);
  const { verdict } = output("diff", "--json", PLAIN, LEAKING) as { verdict: { id: string; summary: string } };
  expect(verdict.id).toBe("leak");
  await withInput("served", [PLAIN, LEAKING], page, async (url) => {
    await openPage(page, url);
    const summary = page.getByTestId("diff-summary");
    await expect(summary).toHaveAttribute("data-verdict", "leak");
    await expect(summary).toHaveText(rounded(verdict.summary));
    const { inputs } = await told(url);
    const [one = 0, other = 0] = inputs.map(({ devices }) => devices[0]?.events ?? 0);
    expect(one).not.toBe(other);
    const shorter = one < other ? 0 : 1;
    for (const index of [0, 1]) {
      const plot = page.getByTestId(`pane-${index}`).getByTestId("plot");
      const label = expect(plot);
      if (index === shorter) await label.toHaveAttribute("aria-label", /the other run is longer/);
      else await label.not.toHaveAttribute("aria-label", /the other run is longer/);
    }
    expect(wrong).toEqual([]);
  });
});

for (const way of ["served", "report"] as const)
  test(`${way}: --by selects the layers, and the flame graph has their colors`, async ({ page }) => {
    const wrong = watch(page);
    const given = ["--by", "kind", PLAIN];
    const served = way === "served" ? await serve(...given) : { url: report("kinds", ...given), end: () => undefined };
    try {
      await openPage(page, served.url);
      const swatch = page.locator(".legend .layer").filter({ hasText: "activations" }).locator(".swatch");
      // It has a number once the sites are loaded.
      await expect(swatch).toHaveText(/\d/);
      const color = (await swatch.getAttribute("data-color")) ?? "";
      const hasColor = () =>
        page.getByTestId("flame").evaluate((canvas: HTMLCanvasElement, wanted: string) => {
          const [red, green, blue] = [1, 3, 5].map((at) => parseInt(wanted.slice(at, at + 2), 16));
          const { data } = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height) ?? { data: [] };
          for (let at = 0; at < data.length; at += 4)
            if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) return true;
          return false;
        }, color);
      await expect.poll(hasColor).toBe(true);
      await expect(page.getByTestId("moment")).toContainText("live");
      await page.getByTestId("tab-sites").click();
      await expect(page.getByTestId("site").filter({ hasText: "activations" })).toHaveCount(1);
      await page.getByTestId("tab-allocations").click();
      await page.getByTestId("search").fill("activations");
      await expect(page.getByTestId("allocation").first()).toBeVisible();
      expect(wrong).toEqual([]);
    } finally {
      await page.close();
      served.end();
    }
  });

test("a saved report keeps the layers that the page shows", async ({ page }) => {
  await withInput("served", [PLAIN], page, async (url) => {
    await openPage(page, url);
    await page.getByTestId("by").selectOption("kind");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByTestId("save-report").click()]);
    const file = join(FOLDER, "saved-kinds.html");
    await download.saveAs(file);
    expect((await told(`file://${file}`)).layers).toBe("kind");
  });
});

test("the table of allocators shows the run as recorded, although a replay has no limit", async ({ page }) => {
  await withInput("served", [TRACE], page, async (url) => {
    await openPage(page, url);
    const device = (await told(url)).inputs[0]?.devices[0];
    if (device === undefined) throw new Error("no device");
    await page.keyboard.press("8");
    await page.getByTestId("whatif-start").click();
    const recorded = page.getByTestId("whatif-recorded");
    await expect(recorded).toContainText(size(device.peak_reserved.reserved), { timeout: 60_000 });
    await expect(recorded).toContainText(`at event ${count(device.failures[0]?.event ?? 0)}`);
    await expect(page.getByTestId("whatif").first()).not.toContainText("as recorded");
    await expect(page.getByTestId("whatif").first()).toContainText("without a limit");
  });
});

test("a recording of several GPUs names the one that the verdict is about", async ({ page }) => {
  const devices = join(FOLDER, "odd-devices.pickle");
  await withInput("served", [devices], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("other-devices")).toContainText("This verdict is for GPU 2 (of 2 GPUs)");
  });
  const served = await serve("--device", "1", devices);
  try {
    expect((await told(served.url)).inputs[0]?.why.ledger?.device).toBe(1);
  } finally {
    served.end();
  }
});
