// Tests of kinds of memory: as layers, in the list of holders, in a report, and in the comparison of two inputs.
import { join } from "node:path";
import { expect, test } from "@playwright/test";
import { rounded, size } from "../src/format";
import { openPage, output, ROOT, watch, withInput } from "./makeroom";

test("layers and holders can be kinds of memory, and agree with makeroom why --by kind", async ({ page }) => {
  const wrong = watch(page);
  const adamw = join(ROOT, "traces", "kinds", "adamw.pickle.gz");
  const kinds = output("why", "--json", "--by", "kind", adamw) as { groups: { name: string; bytes: number }[] };
  await withInput("served", [adamw], page, async (url) => {
    await openPage(page, url);
    await page.getByTestId("who").selectOption("kind");
    await page.getByTestId("by").selectOption("kind");
    const largest = kinds.groups.sort((one, other) => other.bytes - one.bytes).slice(0, 5);
    for (const [index, { name, bytes }] of largest.entries()) {
      const row = page.getByTestId("holder").nth(index);
      await expect(row).toHaveAttribute("data-bytes", String(bytes));
      await expect(row).toContainText(name.replace("_", " "));
      await expect(page.locator(".legend")).toContainText(`${name.replace("_", " ")} ${size(bytes)}`);
    }
    // Each kind has its own color, and none is gray.
    const swatches = page.locator(".legend .layer .swatch");
    const colors = await swatches.evaluateAll((all) => all.map((one) => one.getAttribute("data-color")));
    expect(new Set(colors).size).toBe(colors.length);
    await expect(page.getByTestId("holder").first()).toHaveAttribute("title", /\w/);
    await expect.poll(() => page.evaluate(() => location.hash)).toContain("who=kind");
    await page.reload();
    await expect(page.getByTestId("who")).toHaveValue("kind");
    await page.getByTestId("who").selectOption("thread");
    await expect(page.getByTestId("who-hint")).toContainText("makeroom run");
    for (const by of ["module", "stage", "stream", "size", "allocation"]) {
      await page.getByTestId("by").selectOption(by);
      await expect(page.locator(".legend .layer").first()).toBeVisible();
    }
    await expect(page.locator(".legend")).toContainText("event ");
    await page.getByTestId("tab-sites").click();
    await expect(page.getByTestId("site").filter({ hasText: "other allocations" })).not.toContainText("in other");
    expect(wrong).toEqual([]);
  });
});

test("a report shows kinds of memory, and the difference of two inputs by kind", async ({ page }) => {
  const wrong = watch(page);
  const inputs = ["adamw", "adamw-batch"].map((name) => join(ROOT, "traces", "kinds", `${name}.pickle.gz`));
  await withInput("report", inputs, page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("kind-change").first()).toContainText("activations");
    await page.getByTestId("verdict-of-0").locator("summary").first().click();
    await page.getByTestId("who").first().selectOption("kind");
    await expect(page.getByTestId("holder").first()).toContainText("activations");
    expect(wrong).toEqual([]);
  });
});

test("two inputs are compared by kind and by line, as makeroom diff does", async ({ page }) => {
  const wrong = watch(page);
  const [before, after] = ["adamw", "adamw-scores"].map((name) => join(ROOT, "traces", "kinds", `${name}.pickle.gz`));
  if (before === undefined || after === undefined) throw new Error("no recordings");
  const diff = output("diff", "--json", before, after) as {
    verdict: { summary: string };
    kinds: { before_bytes: number; after_bytes: number }[];
    lines: { before_bytes: number; after_bytes: number; place: string }[];
  };
  await withInput("served", [before, after], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("diff-summary")).toContainText(rounded(diff.verdict.summary));
    const changed = diff.kinds.filter((kind) => kind.before_bytes !== kind.after_bytes);
    await expect(page.getByTestId("kind-change")).toHaveCount(changed.length);
    await expect(page.getByTestId("kind-change").first()).toHaveAttribute(
      "data-after",
      String(changed[0]?.after_bytes),
    );
    const [line] = diff.lines;
    await expect(page.getByTestId("line-change").first()).toContainText(line?.place ?? "");
    await expect(page.getByTestId("line-change").first()).toHaveAttribute("data-before", String(line?.before_bytes));
    expect(wrong).toEqual([]);
  });
});

test("an input without a history is compared at its moment only", async ({ page }) => {
  const wrong = watch(page);
  const profile = join(ROOT, "traces", "jax_memory.prof.gz");
  await withInput("served", [profile, join(ROOT, "traces", "kinds", "adamw.pickle.gz")], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("kind-change").first()).toBeVisible();
    await expect(page.getByTestId("difference-chart")).toHaveCount(0);
    // The cursor is at the peak of the recording that has one.
    await expect(page.getByTestId("pane-1").locator(".reading")).toContainText("live 242 MiB");
    expect(wrong).toEqual([]);
  });
});

test("an error message is compared by its verdict only", async ({ page }) => {
  const wrong = watch(page);
  const text = join(ROOT, "examples", "other-process.txt");
  await withInput("served", [text, join(ROOT, "traces", "oom_fragmented.pickle.gz")], page, async (url) => {
    await openPage(page, url);
    await expect(page.getByTestId("difference")).toContainText("other-process is not a recording");
    await expect(page.getByTestId("line-change")).toHaveCount(0);
    expect(wrong).toEqual([]);
  });
});
