#!/usr/bin/env bash
# fetch_arrow.sh: brings libarrow and libparquet, with which Parquet and Arrow files are read and written, into the cache,
# unless they are there: 55 MB, of the wheel that packages/pyarrow.txt pins. Needs python3 with pip. Configure again
# afterwards (`./dev build` does): cmake/FindArrow.cmake looks there. Without them those formats are left out.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^pyarrow==\([0-9.]*\).*/\1/p' "$root/packages/pyarrow.txt")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/muster
place=$cache/pyarrow-$version
if [[ -d $place ]]; then
  echo "Arrow: there, in $place"
  exit
fi
[[ $(uname -m) == x86_64 ]] || { echo "fetch_arrow.sh: the pinned wheel is for x86_64: set ARROW_ROOT" >&2; exit 1; }
python3 -m pip --version >/dev/null 2>&1 || { echo "fetch_arrow.sh: python3 has no pip: install python3-pip" >&2; exit 1; }
mkdir -p "$cache"
# Beside the place, so that the last act is a rename: what is interrupted leaves no half of it.
work=$(mktemp -d "$cache/arrow.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download --no-deps --only-binary=:all: --require-hashes --no-cache-dir --disable-pip-version-check \
  --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_28_x86_64 \
  -d "$work/wheels" -r "$root/packages/pyarrow.txt"
# Of all that is in it only these two libraries, headers and licences.
python3 - "$work" <<'END'
import re, sys, zipfile
from pathlib import Path
work = Path(sys.argv[1])
wanted = re.compile(r"pyarrow/(include/(arrow|parquet)/.+|lib(arrow|parquet)\.so\.\d+)$|[^/]+\.dist-info/licenses/.+\.txt$")
for wheel in (work / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work / "prefix", [name for name in archive.namelist() if wanted.match(name)])
END
mv -T "$work/prefix" "$place" || [[ -d $place ]]
echo "Arrow: ready in $place ($(du -sh "$place" | cut -f1))"
