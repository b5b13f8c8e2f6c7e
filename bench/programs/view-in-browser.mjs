// The part of `bench/run view --browser` that drives Chromium: opens a page, navigates with the mouse wheel, and measures in the page.
//
//     node bench/programs/view-in-browser.mjs GESTURES -- makeroom view --no-browser FILE
//
// The browser is already running when the command starts, like a user's. A gesture is one turn of the wheel, up, down or sideways,
// at a random place; with Ctrl where it zooms. It ends when a frame that shows the new range is painted: at any resolution (`seen`), and at full resolution
// (`exact`). Both start at the browser's timestamp of the input. Prints one JSON object.
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { chromium } from "../../viewer/node_modules/@playwright/test/index.mjs";

const [gestures, , ...command] = process.argv.slice(2);

/** Runs in the page: resolves when the wanted range is painted, with the times of the frames. */
function watchGesture() {
  window.gesture = new Promise((resolve) => {
    const plot = document.querySelector("[data-testid=plot]");
    const before = plot.dataset.range;
    addEventListener(
      "wheel",
      ({ timeStamp }) => {
        let seen = null;
        const look = () => {
          const drawn = document.querySelector(".uplot")?.dataset;
          const now = plot.dataset.range;
          const is = now !== before && drawn?.drawn === now;
          // A message comes after the frame that this belongs to is painted.
          const painted = new MessageChannel();
          painted.port1.onmessage = () => {
            const took = performance.now() - timeStamp;
            if (is && seen === null) seen = took;
            if (is && drawn.exact === "true") resolve({ seen, exact: took });
            // At its ends a view does not move.
            else if (now === before && took > 300) resolve(null);
            else requestAnimationFrame(look);
          };
          painted.port2.postMessage(null);
        };
        requestAnimationFrame(look);
      },
      { once: true, capture: true },
    );
  });
}

/** Runs in the page before its own scripts: when the first series is painted, on the clock of the machine. */
function watchFirst() {
  window.first = new Promise((resolve) => {
    const look = () => {
      const drawn = document.querySelector(".uplot")?.dataset;
      if (drawn?.exact !== "true") {
        requestAnimationFrame(look);
        return;
      }
      const painted = new MessageChannel();
      painted.port1.onmessage = () => resolve(performance.timeOrigin + performance.now());
      painted.port2.postMessage(null);
    };
    requestAnimationFrame(look);
  });
}

/** The most that a process ever held, in bytes. */
function resident(pid) {
  return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) * 1024;
}

/** The largest of the processes that draw pages. */
function renderer() {
  let most = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name)))
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      if (line.includes("--type=renderer") && line.includes(PROFILE)) most = Math.max(most, resident(pid));
    } catch {
      // It has ended since.
    }
  return most;
}

const PROFILE = `makeroom-bench-${process.pid}`;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", `--user-agent=${PROFILE}`],
});
const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
await page.addInitScript(watchFirst);
let received = 0;
const network = await page.context().newCDPSession(page);
await network.send("Network.enable");
network.on("Network.loadingFinished", ({ encodedDataLength }) => (received += encodedDataLength));

const began = Date.now();
const server = spawn(command[0], command.slice(1), { stdio: ["ignore", "pipe", "ignore"] });
try {
  const url = await new Promise((resolve, reject) => {
    let said = "";
    server.stdout.on("data", (piece) => {
      said += piece;
      const found = /http:\/\/\S+/.exec(said);
      if (found) resolve(found[0]);
    });
    server.on("exit", (status) => reject(new Error(`${command.join(" ")} ended with ${status}`)));
  });
  const ready = Date.now() - began;
  await page.goto(url);
  const first = (await page.evaluate(() => window.first)) - began;
  const bytes = received;

  const plot = page.getByTestId("plot");
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  // The same gestures in every run: a generator of Lehmer's.
  let seed = 7;
  const chance = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const times = { seen: [], exact: [] };
  for (let number = 0; number < Number(gestures); number += 1) {
    await page.mouse.move(box.x + box.width * (0.05 + 0.9 * chance()), box.y + box.height / 2);
    await page.evaluate(watchGesture);
    // Nearer and along more often than farther, back to the whole now and then: from the run to single events.
    const kind = chance();
    if (number % 40 === 39) await page.keyboard.press("0");
    const [across, down] = kind < 0.5 ? [0, -400] : kind < 0.65 ? [0, 400] : [(chance() - 0.5) * 1600, 0];
    if (across === 0) await page.keyboard.down("Control");
    await page.mouse.wheel(across, down);
    if (across === 0) await page.keyboard.up("Control");
    const took = await page.evaluate(() => window.gesture);
    if (took !== null) for (const name of ["seen", "exact"]) times[name].push(took[name]);
  }
  console.log(
    JSON.stringify({ ready, first, bytes, times, server: resident(server.pid), page: renderer() }),
  );
} finally {
  server.removeAllListeners("exit");
  server.kill();
  await browser.close();
}
