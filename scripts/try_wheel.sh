#!/usr/bin/env bash
# Tries a wheel of muster-train (scripts/build_wheel.sh) in a new Debian system that has Python and nothing of
# ours: install, train, verify, as docs/python.md says, with the time of each.
#
#   scripts/try_wheel.sh SUITE WHEEL [CACHE]     SUITE: bookworm (Python 3.11) or trixie (3.13)
#
# The system is made with mmdebstrap in a temporary folder, of the package mirror of this machine. What
# pip downloads (3 GB, the package torch) is kept in CACHE. Needs root, for mounts in a namespace of its own.
set -euo pipefail

fail() { printf 'try_wheel.sh: %s\n' "$*" >&2; exit 1; }
(($# >= 2)) || fail "usage: scripts/try_wheel.sh SUITE WHEEL [CACHE]"
suite=$1
wheel=$(realpath "$2")
cache=$(realpath -m "${3:-${XDG_CACHE_HOME:-$HOME/.cache}/muster/pip}")
source=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
command -v mmdebstrap >/dev/null || fail "mmdebstrap is not installed: apt-get install mmdebstrap"
[[ -f $wheel ]] || fail "there is no $wheel"

# The mirror that apt uses here; another suite than this machine's may have another path there.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 -E '/debian/?$') || fail "apt has no sources"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mkdir -p "$cache"

mmdebstrap --variant=minbase --quiet --include=python3,python3-venv,ca-certificates "$suite" "$root" "$mirror"
mkdir -p "$root/cache" "$root/work"
cp "$wheel" "$root/work/"
cp -r "$source/examples" "$root/work/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for certificates in ${PIP_CERT:-} ${SSL_CERT_FILE:-}; do install -D "$certificates" "$root$certificates"; done

cat >"$root/work/try.sh" <<'TRY'
set -euo pipefail
cd /work
seconds() { printf '%-44s %6.1f s\n' "$1" "$(echo "$2 $3" | awk '{ print $2 - $1 }')"; }
now() { date +%s.%N; }
wheel=$(echo ./*.whl)
python3 --version
python3 -m venv /tmp/download
found=/cache/wheels-$(python3 -c 'import sys; print(sys.version_info[1])')
/tmp/download/bin/pip download --quiet --cache-dir /cache/http -d "$found" "$wheel" uv

with_pip() { venv/bin/pip install --quiet --no-index --find-links "$found" "$wheel"; }
with_uv() {
  uv/bin/pip install --quiet --no-index --find-links "$found" uv
  uv/bin/uv pip install --quiet --python uv/bin/python --no-cache --no-index --find-links "$found" "$wheel"
}
# first_step VENV INSTALL: an empty environment, the wheel in it, and a trained step.
first_step() {
  local begin installed
  begin=$(now)
  python3 -m venv "$1"
  "$2"
  installed=$(now)
  seconds "$1: install, everything downloaded" "$begin" "$installed"
  PATH=$PWD/$1/bin:$PATH muster train --program examples/pytorch-loop/train.py --workers 2 --run-dir "one-$1" -s steps=1 \
    >first.txt 2>&1 || { cat first.txt; exit 1; }
  seconds "$1: one step with two workers" "$installed" "$(now)"
  seconds "$1: both" "$begin" "$(now)"
}
first_step uv with_uv
rm -r uv
first_step venv with_pip
. venv/bin/activate
begin=$(now)
venv/bin/pip install --quiet --no-index --find-links "$found" --force-reinstall --no-deps "$wheel"
seconds "pip install of the wheel, torch being there" "$begin" "$(now)"

begin=$(now)
for _ in 1 2 3 4 5 6 7 8 9 10; do muster --version >/dev/null; done
seconds "muster --version, ten times" "$begin" "$(now)"
muster --version
python examples/pytorch-loop/train.py
muster verify --program examples/pytorch-loop/train.py --workers 2 --faults kill:2 --seed 1
muster train examples/lenet-sample.yaml --workers 2 | tail -4
muster runs list
muster doctor >doctor.txt
head -20 doctor.txt
TRY
unshare --mount --propagation private bash -euo pipefail -c '
  mount --bind "$0" "$0"
  mount -t proc proc "$0/proc"
  mount --rbind /dev "$0/dev"
  mount -t tmpfs tmpfs "$0/dev/shm"
  mount --bind "$1" "$0/cache"
  exec chroot "$0" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 TERM=dumb PIP_DEFAULT_TIMEOUT=180 ${2:+PIP_CERT="$2"} bash /work/try.sh
' "$root" "$cache" "${PIP_CERT:-}"
