// The chart with its headline as an image, to paste into an issue or a chat.
import { FONT } from "./draw";
import { rounded } from "./format";
import { headline } from "./headline";
import type { Model, Pane } from "./model";
import { shorten } from "./text";

const MARGIN = 16;
const LINE = 20;

/** Breaks a text into lines of at most `width`. */
function wrap(context: CanvasRenderingContext2D, text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (line !== "" && context.measureText(longer).width > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  if (line !== "") lines.push(line);
  return lines;
}

function compose(model: Model, panes: Pane[]): HTMLCanvasElement {
  const ratio = window.devicePixelRatio || 1;
  const charts = panes.flatMap((pane) => (pane.chart === null ? [] : [{ pane, chart: pane.chart }]));
  const width = Math.max(480, ...charts.map(({ chart }) => chart.width / ratio)) + 2 * MARGIN;
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  if (context === null) return canvas;
  const text = FONT.replace("11px", "13px");
  const title = `600 ${FONT.replace("11px", "16px")}`;
  const parts = charts.map(({ pane, chart }) => {
    const { label, sentence } = headline(pane.input.why, pane.device, pane.alternative.value);
    context.font = title;
    return {
      pane,
      chart,
      label,
      lines: wrap(context, shorten(rounded(sentence).replaceAll("`", ""), 400), width - 2 * MARGIN),
    };
  });
  const height = parts.reduce(
    (sum, { chart, lines }) => sum + chart.height / ratio + (lines.length + 1) * LINE + 28,
    8,
  );
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.scale(ratio, ratio);
  context.fillStyle = model.colors.panel;
  context.fillRect(0, 0, width, height);
  context.textBaseline = "middle";
  let y = MARGIN;
  for (const { pane, chart, label, lines } of parts) {
    context.font = text;
    context.fillStyle = model.colors.faint;
    context.fillText(`${shorten(pane.input.name, 80)} · ${label}`, MARGIN, y + LINE / 2);
    y += LINE;
    context.font = title;
    context.fillStyle = model.colors.ink;
    for (const line of lines) {
      context.fillText(line, MARGIN, y + LINE / 2);
      y += LINE;
    }
    y += 6;
    context.drawImage(chart, MARGIN, y, chart.width / ratio, chart.height / ratio);
    y += chart.height / ratio + 10;
  }
  context.font = FONT;
  context.fillStyle = model.colors.faint;
  context.fillText("makeroom view", MARGIN, height - 10);
  return canvas;
}

/** Copies the picture; where the browser does not allow that, it is saved as a file. Returns what was done instead. */
export async function copyPicture(model: Model): Promise<string | undefined> {
  const canvas = compose(model, model.panes);
  const image = await new Promise<Blob | null>((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
  if (image === null) throw new Error("the picture could not be drawn");
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": image })]);
    return undefined;
  } catch {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(image);
    link.download = "makeroom.png";
    link.click();
    setTimeout(() => {
      URL.revokeObjectURL(link.href);
    }, 10_000);
    return "saved";
  }
}
