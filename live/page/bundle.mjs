// Bundles markup, styles and code into one compressed file that loads nothing else.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const bundled = await build({
  entryPoints: ["main.ts"],
  bundle: true,
  minify: true,
  write: false,
  outdir: ".",
  target: "es2022",
  legalComments: "inline",
});
const text = (suffix) => bundled.outputFiles.find((file) => file.path.endsWith(suffix)).text;
const code = text(".js").replaceAll("</script", "<\\/script");
const hash = createHash("sha256").update(code).digest("base64");
const policy = [
  "default-src 'none'",
  `script-src 'sha256-${hash}'`,
  "style-src 'unsafe-inline'",
  "connect-src 'self'",
  "img-src data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const page = readFileSync("page.html", "utf8")
  .replace("<!-- policy -->", () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
  .replace("<!-- styles -->", () => `<style>${text(".css")}</style>`)
  .replace("<!-- code -->", () => `<script>${code}</script>`);
writeFileSync(process.argv[2], gzipSync(page, { level: 9 }));
