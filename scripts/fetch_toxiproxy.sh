#!/usr/bin/env bash
# fetch_toxiproxy.sh: builds the Toxiproxy that tests/e2e/streams.py starts, into the cache, unless it is there. Needs Go;
# takes a minute. Without it the part of that test that disturbs connections is left out.
set -euo pipefail

version=2.12.0
place=${XDG_CACHE_HOME:-$HOME/.cache}/muster/toxiproxy/$version
if [[ -x $place/toxiproxy-server ]]; then
  echo "Toxiproxy: there, in $place"
  exit
fi
command -v go >/dev/null || { echo "fetch_toxiproxy.sh: there is no go: install golang 1.23 or later" >&2; exit 1; }
mkdir -p "$place"
work=$(mktemp -d "$place/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
GOBIN=$work go install "github.com/Shopify/toxiproxy/v2/cmd/server@v$version"
# The last act is a rename: an interrupted build leaves no half program.
mv "$work/server" "$place/toxiproxy-server"
echo "Toxiproxy: ready in $place"
