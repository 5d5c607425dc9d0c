#!/usr/bin/env bash
# fetch_hdfs.sh: brings the jars of HDFS that tests/e2e/hdfs.py starts into the cache, unless they are there: 67 MB, those that
# packages/hdfs.txt pins. Needs curl; running them needs Java 17 (Debian's openjdk-17-jre-headless). Without them that test is
# skipped. MUSTER_MAVEN names another repository than Maven Central, such as a mirror.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
pins=$root/packages/hdfs.txt
from=${MUSTER_MAVEN:-https://repo.maven.apache.org/maven2}
version=$(sed -n 's|.*/hadoop-hdfs-\([0-9.]*\)\.jar$|\1|p' "$pins")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/muster/hdfs
place=$cache/$version
if [[ -d $place ]]; then
  echo "HDFS: there, in $place"
  exit
fi
command -v curl >/dev/null || { echo "fetch_hdfs.sh: there is no curl: install it" >&2; exit 1; }
mkdir -p "$cache"
# Beside the place, so that the last act is a rename: what is interrupted leaves no half of it.
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Each jar under its path in the repository, as the hashes name it; then all in one directory.
sed -n "s|^[0-9a-f]\{64\}  \(.*\)|url = \"$from/\1\"\noutput = \"$work/tree/\1\"|p" "$pins" >"$work/urls"
curl --config "$work/urls" --create-dirs --fail --silent --show-error --location --retry 3
grep -v '^#' "$pins" | (cd "$work/tree" && sha256sum --check --strict --quiet)
mkdir "$work/jars"
find "$work/tree" -name '*.jar' -exec mv -t "$work/jars" {} +
mv -T "$work/jars" "$place" || [[ -d $place ]]
echo "HDFS: ready in $place ($(du -sh "$place" | cut -f1))"
command -v java >/dev/null || echo "HDFS: there is no java: install openjdk-17-jre-headless, or name one in MUSTER_JAVA"
