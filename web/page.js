// The page: takes a log or a file, has a worker explain it, and shows the answer.
const CODE = document.getElementById("code").textContent.trim();
const WORKER = document.getElementById("worker").textContent;
const LARGEST = 200 * 2 ** 20;
const EXAMPLE = document.getElementById("example-text").textContent.trim();
const COLUMNS = 100;
// The page that contains this one has a heading of its own.
if (window.self !== window.top) document.documentElement.classList.add("embedded");

const element = (id) => document.getElementById(id);
const made = (name, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};

let module;
/** The compiled module. The page contains it as compressed text, so that it is one file. */
async function compiled() {
  module ??= (async () => {
    const packed = Uint8Array.from(atob(CODE), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return WebAssembly.compile(await new Response(stream).arrayBuffer());
  })();
  return module;
}

let worker;
let inputs = 0;
/** Has a worker explain a log or a file. A file replaces the log, so that the page shows one input and its answer. */
async function explain(file) {
  worker?.terminate();
  inputs += 1;
  const input = inputs;
  if (file.name) element("log").value = "";
  // An answer counts only if no other input has come since.
  const show = (answer) => input === inputs && present(answer, file);
  if (file.size > LARGEST) {
    show({ error: "the file is larger than 200 MiB", hint: "install makeroom and run: makeroom why FILE" });
    return;
  }
  element("result").replaceChildren(made("p", { className: "faint", textContent: "Analyzing…" }));
  let code;
  try {
    code = await compiled();
  } catch (error) {
    module = undefined;
    show({ error: `this browser cannot run the explainer: ${error.message}`, hint: "use a current version of Firefox, Chrome or Safari" });
    return;
  }
  if (input !== inputs) return;
  const address = URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }));
  worker = new Worker(address);
  URL.revokeObjectURL(address);
  worker.onmessage = ({ data }) => show(data);
  worker.onerror = (event) => show({ error: event.message ?? "the explainer could not be started" });
  worker.postMessage({ module: code, file, columns: COLUMNS });
}

/** A number of bytes as `why` prints it. */
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  let value = Math.abs(bytes);
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${bytes < 0 ? "-" : ""}${unit === 0 ? value : value.toFixed(2)} ${units[unit]}`;
}

function copyButton(text, label = "Copy") {
  const button = made("button", { type: "button", textContent: label });
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text and press Ctrl+C";
    }
    setTimeout(() => (button.textContent = label), 2000);
  };
  return button;
}

function account({ name, total_bytes: total, lines, unaccounted_bytes: open }) {
  const rows = lines.filter((line) => line.bytes > 0).map(({ what, bytes, note }) => ({ what, bytes, note }));
  if (open > 0) rows.push({ what: "unaccounted", bytes: open });
  if (rows.length === 0) return [];
  const most = Math.max(...rows.map((row) => row.bytes));
  const table = made("table", { className: "account" });
  for (const { what, bytes, note } of rows) {
    const bar = made("span", { className: what === "free" ? "bar free" : "bar" });
    bar.style.width = `${Math.max((bytes / most) * 70, 0.5)}%`;
    const cells = [made("td", { textContent: what }), made("td", { className: "number", textContent: size(bytes) }), made("td", { className: "bars" }, bar)];
    if (note) cells[2].append(made("span", { className: "note", textContent: note }));
    table.append(made("tr", {}, ...cells));
  }
  return [made("h3", { textContent: total ? `${name}, ${size(total)}` : name }), table];
}

/** The lines of code that hold the most memory. */
function holders(sites) {
  if (sites.length === 0) return [];
  const table = made("table", { className: "holders" });
  for (const { site, bytes } of sites.slice(0, 8)) {
    table.append(made("tr", {}, made("td", { className: "number", textContent: size(bytes) }), made("td", {}, made("code", { textContent: site }))));
  }
  return [made("h3", { textContent: "Live memory, by line of code" }), table];
}

function list(title, texts) {
  if (texts.length === 0) return [];
  return [made("h3", { textContent: title }), made("ul", {}, ...texts.map((textContent) => made("li", { textContent })))];
}

/** Things to do, each with its command. */
function steps(title, items) {
  if (items.length === 0) return [];
  const list = made("ol", { className: "steps" });
  for (const { do: what, command, frees_bytes: frees } of items) {
    const item = made("li", {}, made("span", { textContent: frees ? `${what} (frees up to ${size(frees)})` : what }));
    if (command) item.append(made("div", { className: "command" }, made("code", { textContent: command }), copyButton(command)));
    list.append(item);
  }
  return [made("h3", { textContent: title }), list];
}

/** One cause is the verdict, and its fixes follow. Several are possible ones, each with a way to check it. */
function causesAndFixes(causes) {
  if (causes.length <= 1) return steps("Fixes, most effective first", causes.flatMap((cause) => cause.fixes));
  return causes.flatMap(({ title, certainty, summary, check, fixes }) => [
    made("h3", { textContent: `${title} (${certainty})` }),
    made("p", { textContent: check ? `${summary} To check: ${check}` : summary }),
    ...steps("", fixes),
  ]);
}

function explanation({ text, json: { verdict, request, causes, ledger, sites, will_not_help: useless, next, notes } }) {
  const certainty = verdict.certainty ? ` (${verdict.certainty})` : "";
  const asked = request?.site ? [made("p", { className: "faint" }, "requested at ", made("code", { textContent: request.site }))] : [];
  const whole = made("details", {}, made("summary", { textContent: "Show as plain text" }), copyButton(text, "Copy the text"), made("pre", { textContent: text }));
  return [
    made("h2", { textContent: `${verdict.title}${certainty}` }),
    made("p", { textContent: verdict.summary }),
    ...asked,
    ...(ledger ? account(ledger) : []),
    ...holders(sites),
    ...causesAndFixes(causes),
    ...list("Will not help", useless),
    ...steps("Next", next),
    ...list("Notes", notes),
    whole,
  ];
}

function failure({ error, hint }) {
  return [
    made("h2", { className: "failure", textContent: "No explanation" }),
    made("p", { textContent: error }),
    ...(hint ? [made("p", { className: "faint", textContent: `hint: ${hint}` })] : []),
  ];
}

function present(answer, file) {
  const name = file.name ? [made("p", { className: "faint", textContent: `${file.name}, ${size(file.size)}` })] : [];
  element("result").replaceChildren(...name, ...(answer.error ? failure(answer) : explanation(answer)));
  // For tests, which compare it with the command's.
  window.answer = answer;
  // A page that contains this one first gives the frame its new height.
  requestAnimationFrame(() => requestAnimationFrame(() => element("result").scrollIntoView({ block: "nearest" })));
}

element("explain").onclick = () => explain(new Blob([element("log").value]));
element("example").onclick = () => {
  element("log").value = EXAMPLE;
  explain(new Blob([EXAMPLE]));
};
element("file").onchange = ({ target }) => {
  if (target.files.length > 0) explain(target.files[0]);
  // The same file, changed since, can be opened again.
  target.value = "";
};
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  const [file] = event.dataTransfer.files;
  if (file) explain(file);
});
