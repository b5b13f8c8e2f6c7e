// The part of `bench/run job --browser` that drives Chromium: opens the page of a job, and clicks on the first rank.
//
//     node bench/programs/job-in-browser.mjs PAGE
//
// The browser is already running, like a user's. Prints one JSON object: the seconds until the frame with the map of ranks is
// painted, and where a click on the first rank leads: to the rank's page, or to the command that shows it.
import { pathToFileURL } from "node:url";
import { chromium } from "../../viewer/node_modules/@playwright/test/index.mjs";

/** Runs in the page before its own scripts: when the map is painted, on the clock of the machine. */
function watchFirst() {
  window.first = new Promise((resolve) => {
    const look = () => {
      if (document.getElementById("map")?.dataset.drawn !== "true") {
        requestAnimationFrame(look);
        return;
      }
      // A message comes after the frame that this belongs to is painted.
      const painted = new MessageChannel();
      painted.port1.onmessage = () => resolve(performance.timeOrigin + performance.now());
      painted.port2.postMessage(null);
    };
    requestAnimationFrame(look);
  });
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  await page.addInitScript(watchFirst);
  const began = Date.now();
  const url = pathToFileURL(process.argv[2]).href;
  await page.goto(url);
  const seconds = ((await page.evaluate(() => window.first)) - began) / 1000;
  const rows = await page.evaluate(() => data.ranks.length);
  if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT });
  // The last rank has no page of its own in a large job.
  await page.selectOption("#order", "rank");
  await page.focus("#frame");
  for (let turn = 0; turn < rows / 20; turn += 1) await page.keyboard.press("PageDown");
  await page.keyboard.press("Enter");
  const command = await page.evaluate(() => getSelection().toString());
  await page.selectOption("#order", "fate");
  await page.click("#map", { position: { x: 30, y: 9 } });
  await page.waitForLoadState();
  console.log(JSON.stringify({ seconds, rows, command, page: page.url() === url ? null : page.url(), problems }));
} finally {
  await browser.close();
}
