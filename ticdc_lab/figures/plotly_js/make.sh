#!/bin/sh
# Builds plotly.min.js.gz beside this file: entry.js and what it asks for of plotly.js, in one text. Needs node and npm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --ignore-scripts --no-audit --no-fund plotly.js@4.1.1 esbuild@0.28.2
cp "$here/entry.js" .
npx --no-install esbuild entry.js --bundle --minify --format=iife --global-name=Plotly --define:global=window \
  --define:define.amd=false --target=es2022 --loader:.css=empty --outfile=plotly.min.js \
  "--footer:js=if(typeof module==='object'&&module.exports)module.exports=Plotly;"
{
  echo '/* plotly.js v4.1.1 with scatter, bar, heatmap, icicle and table. Copyright 2012-2026, Plotly, Inc. MIT licence. */'
  cat plotly.min.js
} > "$here/plotly.min.js"
sha256sum "$here/plotly.min.js"
gzip -9nf "$here/plotly.min.js"
