// Builds one page in one file: script and style end up inside dist/index.html, which `makeroom view` serves and `-o`
// fills.
import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";
import { fixtures } from "./fixtures/server";

/** `SERVER=http://127.0.0.1:PORT/TOKEN npm run dev` uses a running `makeroom view` instead of the generated run. */
const server = process.env["SERVER"];

export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true }), ...(server === undefined ? [fixtures()] : [])],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: { target: "es2022", reportCompressedSize: false, modulePreload: false },
  server: server === undefined ? {} : { proxy: { "/api": { target: server, changeOrigin: true } } },
  test: { include: ["tests/**/*.test.ts"] },
});
