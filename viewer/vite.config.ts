// One page, one file: script and style end up inside of dist/index.html, which `makeroom view` serves and `-o` fills.
import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";
import { fixtures } from "./fixtures/server";

/** `SERVER=http://127.0.0.1:PORT/TOKEN npm run dev` asks a running `makeroom view` instead of the made-up run. */
const server = process.env["SERVER"];

export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true }), ...(server === undefined ? [fixtures()] : [])],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: { target: "es2022", reportCompressedSize: false, modulePreload: false },
  server: server === undefined ? {} : { proxy: { "/api": { target: server, changeOrigin: true } } },
  test: { include: ["tests/**/*.test.ts"] },
});
