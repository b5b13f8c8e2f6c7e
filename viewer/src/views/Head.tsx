// The header: what was recorded, and the ways to share it.
import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { duration, size } from "../format";
import type { Model, Pane } from "../model";
import { copyPicture } from "../picture";
import { shorten } from "../text";

/** Names of frameworks as people write them. */
const FRAMEWORKS: Record<string, string> = { pytorch: "PyTorch", jax: "JAX", rmm: "RMM", tensorflow: "TensorFlow" };

const KINDS: Record<string, string> = {
  pytorch_snapshot: "memory snapshot",
  room: "",
  rmm_log: "RMM log",
  text: "error message",
  jax_profile: "memory profile",
};

/** What is known about a recording: program, GPU, framework, settings, duration, peak, date. */
export function facts({ input, device }: Pane): string[] {
  const { about, why } = input;
  const found: string[] = [];
  if (about?.program != null) found.push(shorten(about.program.replace(/^\S*\//, ""), 60));
  if (device?.kind === "pinned") found.push("pinned host memory");
  else if (device !== undefined) found.push(shorten(device.name ?? `GPU ${device.device}`, 40));
  const { framework } = why.input;
  const kind = KINDS[input.kind] ?? input.kind;
  const name = framework === null ? "" : (FRAMEWORKS[framework] ?? framework);
  const both = kind.startsWith(name) ? kind : `${name} ${kind}`.trim();
  if (both !== "") found.push(both);
  if (about?.settings != null && about.settings !== "") found.push(shorten(about.settings, 60));
  const ran = about?.duration ?? spanOf(device);
  if (ran !== null && ran > 0) found.push(duration(ran));
  if (device !== undefined && device.peak.live > 0) found.push(`peak ${size(device.peak.live)}`);
  const began = about?.began ?? device?.first_time ?? null;
  if (began !== null && began > 0) found.push(new Date(began / 1000).toISOString().slice(0, 16).replace("T", " "));
  return found;
}

function spanOf(device: Pane["device"]): number | null {
  if (device?.first_time == null || device.last_time === null) return null;
  return device.last_time - device.first_time;
}

/** A button that reports for a moment that it has done its work. */
function Action({
  label,
  done,
  title,
  testid,
  run,
}: {
  label: string;
  done: string;
  title: string;
  testid: string;
  run: () => Promise<string | undefined>;
}) {
  const [said, setSaid] = useState<string | null>(null);
  return (
    <button
      type="button"
      title={title}
      data-testid={testid}
      onClick={() => {
        const say = (text: string) => {
          setSaid(text);
          setTimeout(() => {
            setSaid(null);
          }, 2000);
        };
        run().then(
          (other) => {
            say(other ?? done);
          },
          () => {
            say("failed");
          },
        );
      }}
    >
      {said ?? label}
    </button>
  );
}

export function Head({ model }: { model: Model }) {
  const inputs = model.inputs.value;
  const changed = inputs.inputs.some((input) => input.changed === true || input.vanished === true);
  const trouble = model.trouble.value;
  const reload = () => {
    model.source.post("/api/reload").then(
      () => {
        location.reload();
      },
      (error: unknown) => {
        model.fail(error);
      },
    );
  };
  const charted = model.panes.some((pane) => (pane.device?.events ?? 0) > 0);
  return (
    <header class="head">
      <h1>
        makeroom <span class="quiet">view</span>
      </h1>
      <div class="inputs">
        {model.panes.map((pane) => (
          <p key={pane.index} data-testid="facts" title={shorten([pane.input.name, ...facts(pane)].join(" · "), 600)}>
            <b>{shorten(pane.input.name, 60)}</b>{" "}
            {facts(pane).map((fact, index, all) => (
              <Fragment key={index}>
                <span class="fact quiet">{index + 1 < all.length ? `${fact} ·` : fact}</span>{" "}
              </Fragment>
            ))}
          </p>
        ))}
      </div>
      <div class="actions">
        {charted && (
          <Action
            label="Copy picture"
            done="copied"
            title="Copy the chart with its headline as an image"
            testid="copy-picture"
            run={() => copyPicture(model)}
          />
        )}
        <Action
          label="Copy link"
          done="copied"
          title={
            model.source.embedded
              ? "Copy the address of this view of the report"
              : "Copy the address of this view; it works on this machine while makeroom view runs"
          }
          testid="copy-link"
          run={async () => {
            model.settle();
            await navigator.clipboard.writeText(location.href);
            return undefined;
          }}
        />
        {!model.source.embedded && (
          <a
            class="button main"
            href={`./report.html?by=${model.by.value}`}
            download={`${shorten(model.panes.map((pane) => pane.input.name).join("-"), 80)}.html`}
            title="Save this page with its data as one file that opens anywhere, like makeroom view -o"
            data-testid="save-report"
          >
            Save report
          </a>
        )}
        <button
          type="button"
          onClick={() => {
            model.turn();
          }}
          aria-pressed={model.dark.value}
          title="Switch between light and dark (t)"
          data-testid="theme"
        >
          {model.dark.value ? "Light" : "Dark"}
        </button>
        <button
          type="button"
          title="Keys and mouse"
          onClick={() => {
            model.help.value = true;
          }}
          data-testid="keys"
        >
          Keys <kbd>?</kbd>
        </button>
      </div>
      {changed && (
        <p class="bar-note" role="status" data-testid="changed">
          {inputs.inputs.some((input) => input.vanished === true)
            ? "The file no longer exists; these are its last contents."
            : "The file has changed."}{" "}
          {inputs.can_reload === true && (
            <button type="button" onClick={reload}>
              Reload it
            </button>
          )}
        </p>
      )}
      {trouble !== null && (
        <p class="bar-note failed" role="alert" data-testid="trouble">
          {shorten(trouble.message, 400)}{" "}
          {trouble.hint !== null && <span class="quiet">hint: {shorten(trouble.hint, 400)}</span>}{" "}
          <button
            type="button"
            onClick={() => {
              location.reload();
            }}
          >
            Try again
          </button>
        </p>
      )}
    </header>
  );
}
