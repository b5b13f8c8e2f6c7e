// Tests the page in Chromium (Debian's), with the real `makeroom view`. Started by `.ci/viewer`.
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "browser",
  fullyParallel: true,
  workers: 2,
  timeout: 120_000,
  expect: { timeout: 15_000 },
  reporter: "line",
  globalSetup: "./browser/setup.ts",
  outputDir: process.env["RESULTS"] ?? "test-results",
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 900 },
    launchOptions: { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] },
  },
});
