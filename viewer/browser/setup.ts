// Runs before all tests: creates the recordings of `makeroom demo` and odd recordings, adds those in the directory
// $TRACES if it is set, and runs `why` on each.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { FOLDER, MAKEROOM, ROOT, SCREENSHOTS, type Input } from "./makeroom";

/** The files in a directory, without those in its subdirectories. */
const within = (folder: string) =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(folder, entry.name));

/** Inputs with unique names. Files with identical contents are opened once. */
function named(paths: string[]): Input[] {
  const byBytes = new Map<string, Input>();
  const names = new Set<string>();
  for (const path of paths) {
    const bytes = createHash("sha256").update(readFileSync(path)).digest("hex");
    if (byBytes.has(bytes)) continue;
    let name = basename(path);
    for (let number = 2; names.has(name); number += 1) name = `${number}-${basename(path)}`;
    names.add(name);
    byBytes.set(bytes, { name, path });
  }
  return [...byBytes.values()];
}

export default function setup(): void {
  if (!existsSync(MAKEROOM)) throw new Error(`${MAKEROOM} is not there: cargo build -p makeroom`);
  mkdirSync(SCREENSHOTS, { recursive: true });
  const run = (program: string, ...given: string[]) =>
    execFileSync(program, given, { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] });
  const recordings = join(FOLDER, "recordings");
  if (!existsSync(recordings)) run(MAKEROOM, "demo", "--gpu", "software", "-o", recordings);
  run("python3", join(ROOT, "viewer", "browser", "odd.py"), FOLDER);
  const others = process.env["TRACES"] ?? "";
  const inputs = named([
    ...within(join(ROOT, "traces")),
    // Under a limit with other processes on the GPU, with many failures, and with memory of other libraries.
    ...["fit/varied_57.room.gz", "fit/conv_2900.room.gz", "kinds/growing.room.gz"].map((name) =>
      join(ROOT, "traces", name),
    ),
    ...within(join(ROOT, "crates", "makeroom-trace", "tests", "golden")).filter((path) => path.endsWith(".room")),
    ...within(recordings),
    ...(others === "" ? [] : within(others)),
  ]);
  for (const input of inputs)
    writeFileSync(join(FOLDER, `${input.name}.json`), run(MAKEROOM, "why", "--json", input.path));
  writeFileSync(join(FOLDER, "inputs.json"), JSON.stringify(inputs));
}
