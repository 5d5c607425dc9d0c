#!/usr/bin/env bash
# fetch_minio.sh: builds the MinIO that the tests of muster/store start, into the cache, unless it is there. Needs Go;
# takes minutes. Without it those tests are skipped.
set -euo pipefail

version=20260212201848
commit=7aac2a2c5b7c
place=${XDG_CACHE_HOME:-$HOME/.cache}/muster/minio/$version
if [[ -x $place/minio ]]; then
  echo "MinIO: there, in $place"
  exit
fi
command -v go >/dev/null || { echo "fetch_minio.sh: there is no go: install golang 1.24 or later" >&2; exit 1; }
mkdir -p "$place"
work=$(mktemp -d "$place/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
GOBIN=$work go install "github.com/minio/minio@v0.0.0-$version-$commit"
# The last act is a rename: an interrupted build leaves no half program.
mv "$work/minio" "$place/minio"
echo "MinIO: ready in $place"
