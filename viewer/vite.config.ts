// One page, one file: script and style end up inside of dist/index.html, which `makeroom view` serves and `-o` fills.
import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";
import { fixtures } from "./fixtures/server";

export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true }), fixtures()],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: { target: "es2022", reportCompressedSize: false, modulePreload: false },
  test: { include: ["tests/**/*.test.ts"] },
});
