// Explains one file with the WebAssembly module. Gets {module, file, columns}, posts the parsed answer.
// A file that exhausts the memory of the module, or a bug in it, ends as an error of this worker only.
onmessage = async ({ data: { module, file, columns } }) => {
  try {
    const { exports } = await WebAssembly.instantiate(module, {});
    const place = exports.makeroom_input(file.size) >>> 0;
    if (place === 0 && file.size > 0) {
      postMessage({ error: "not enough memory in the browser for this file", hint: "install makeroom and run: makeroom why FILE" });
      return;
    }
    // In pieces, so that the file is in memory only once.
    const reader = file.stream().getReader();
    let at = place;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      new Uint8Array(exports.memory.buffer).set(value, at);
      at += value.length;
    }
    const start = performance.now();
    const size = exports.makeroom_explain(columns) >>> 0;
    const answer = new Uint8Array(exports.memory.buffer, exports.makeroom_answer() >>> 0, size);
    postMessage({ ...JSON.parse(new TextDecoder().decode(answer)), milliseconds: performance.now() - start });
  } catch (error) {
    postMessage({ error: `the explainer crashed: ${error.message}`, hint: "run makeroom why FILE; if that fails too, please report it" });
  }
};
