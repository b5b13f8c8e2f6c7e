// Starts the page: chooses the source of data, loads the list of inputs, and shows them.
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import { listen } from "./keys";
import { Model } from "./model";
import { open } from "./source";
import "./style/base.css";
import "./style/page.css";
import "./style/chart.css";
import "./style/panel.css";
import "./style/media.css";
import { shorten } from "./text";
import type { Inputs } from "./types";
import { App, Broken, watch } from "./views/App";

async function start(root: HTMLElement): Promise<void> {
  try {
    const source = await open();
    const { value } = await source.get<Inputs>("/api/inputs");
    const model = new Model(source, value);
    document.title = `${value.inputs.map((input) => shorten(input.name, 60)).join(" and ")} · makeroom view`;
    listen(model);
    watch(model);
    root.textContent = "";
    render(<App model={model} />, root);
  } catch (error) {
    root.textContent = "";
    render(<Broken error={error} />, root);
  }
}

const root = document.getElementById("page");
if (root !== null) void start(root);
