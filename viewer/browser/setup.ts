// Before all tests: the recordings of `makeroom demo`, a recording with hostile names, and what `why` says of each.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { FOLDER, MAKEROOM, ROOT, SCREENSHOTS } from "./makeroom";

export default function setup(): void {
  if (!existsSync(MAKEROOM)) throw new Error(`${MAKEROOM} is not there: cargo build -p makeroom`);
  mkdirSync(SCREENSHOTS, { recursive: true });
  const run = (program: string, ...given: string[]) =>
    execFileSync(program, given, { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] });
  const recordings = join(FOLDER, "recordings");
  if (!existsSync(recordings)) run(MAKEROOM, "demo", "--gpu", "software", "-o", recordings);
  run("python3", join(ROOT, "viewer", "browser", "hostile.py"), join(FOLDER, "hostile.pickle"));
  const traces = join(ROOT, "traces");
  const inputs = [
    ...readdirSync(traces).map((name) => join(traces, name)),
    ...readdirSync(recordings).map((name) => join(recordings, name)),
    join(FOLDER, "hostile.pickle"),
  ];
  for (const input of inputs)
    writeFileSync(join(FOLDER, `${basename(input)}.json`), run(MAKEROOM, "why", "--json", input));
  writeFileSync(join(FOLDER, "inputs.json"), JSON.stringify(inputs));
}
