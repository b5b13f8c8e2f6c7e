// Starts `makeroom view` for a test, or makes it write a report, and opens the page. Fails on errors, requests to other
// hosts and dialogs.
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";
import { expect, type Page } from "@playwright/test";
import { unpack } from "../src/source";
import type { Inputs, Why } from "../src/types";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const FOLDER = process.env["FOLDER"] ?? join(tmpdir(), "makeroom-viewer");
export const SCREENSHOTS = process.env["SCREENSHOTS"] ?? join(FOLDER, "screenshots");
export const MAKEROOM = process.env["MAKEROOM"] ?? join(ROOT, "target", "debug", "makeroom");

export type Way = "served" | "report";

/** A recording that every test of every input opens. */
export interface Input {
  name: string;
  path: string;
}

export function inputs(): Input[] {
  const list = join(FOLDER, "inputs.json");
  return existsSync(list) ? (JSON.parse(readFileSync(list, "utf8")) as Input[]) : [];
}

export function why(input: Input): Why {
  return JSON.parse(readFileSync(join(FOLDER, `${input.name}.json`), "utf8")) as Why;
}

/** What a command prints with --json. */
export function output(...given: string[]): unknown {
  const ran = spawnSync(MAKEROOM, given, { encoding: "utf8", maxBuffer: 1 << 28 });
  if (ran.stdout === "") throw new Error(`makeroom ${given.join(" ")}: ${ran.stderr}`);
  return JSON.parse(ran.stdout);
}

export interface Served {
  url: string;
  end: () => void;
}

/** The URL of the page on its own server. */
export async function serve(...given: string[]): Promise<Served> {
  const child: ChildProcess = spawn(MAKEROOM, ["view", "--no-browser", ...given], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const url = await new Promise<string>((resolve, reject) => {
    let said = "";
    const hear = (piece: Buffer) => {
      said += piece.toString();
      const found = /http:\/\/\S+/.exec(said);
      if (found) resolve(found[0]);
    };
    child.stdout?.on("data", hear);
    child.stderr?.on("data", hear);
    child.on("exit", (status) => {
      reject(new Error(`makeroom view ended with ${status ?? "a signal"}: ${said}`));
    });
  });
  return {
    url,
    end: () => {
      child.removeAllListeners("exit");
      child.kill();
    },
  };
}

/** The URL of a report on disk. */
export function report(name: string, ...given: string[]): string {
  const file = join(mkdtempSync(join(FOLDER, "report-")), `${name}.html`);
  const made = spawnSync(MAKEROOM, ["view", ...given, "-o", file], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(`makeroom view -o: ${made.stderr}`);
  return pathToFileURL(file).href;
}

/** Opens an input, served or as a report, for a test. */
export async function withInput(
  way: Way,
  given: string[],
  page: Page,
  test: (url: string) => Promise<void>,
): Promise<void> {
  const name = given.map((input) => basename(input)).join("+");
  const served = way === "served" ? await serve(...given) : { url: report(name, ...given), end: () => undefined };
  try {
    await test(served.url);
  } finally {
    await page.close();
    served.end();
  }
}

/** Collects everything that goes wrong while the page is open. */
export function watch(page: Page): string[] {
  const wrong: string[] = [];
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") wrong.push(`console: ${message.text()}`);
  });
  page.on("dialog", (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol === "http:" && hostname !== "127.0.0.1") wrong.push(`asked ${request.url()}`);
    if (protocol === "https:") wrong.push(`asked ${request.url()}`);
  });
  return wrong;
}

export async function openPage(page: Page, url: string): Promise<void> {
  await page.goto(url);
  await expect(page.getByTestId("verdict").or(page.getByTestId("difference")).first()).toBeVisible();
}

/** The page's list of inputs. */
export async function told(url: string): Promise<Inputs> {
  if (url.startsWith("http")) return (await (await fetch(new URL("api/inputs", url))).json()) as Inputs;
  const [, packed = ""] =
    /<script id="makeroom-data"[^>]*>([^<]*)</.exec(readFileSync(fileURLToPath(url), "utf8")) ?? [];
  const found = unpack(gunzipSync(Buffer.from(packed, "base64")).toString()).get("/api/inputs");
  return (typeof found === "string" ? JSON.parse(found) : found) as Inputs;
}

/** Checks that no part of the page is wider than the window. */
export async function expectNoOverflow(page: Page): Promise<void> {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth] as const);
  expect(content).toBeLessThanOrEqual(window);
}
