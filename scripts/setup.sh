# What ./dev setup does; sourced by it. Two parts, each of which looks first and does nothing when
# everything is there: system packages, and libtorch into the cache.
# shellcheck disable=SC2154  # root, cache and jobs are set there

# The package names in packages/debian.txt.
package_list() {
  sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$root/packages/debian.txt"
}

# Those that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p')
  comm -23 <(package_list | sort -u) <(sort -u <<<"$installed")
}

setup_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "This is not a Debian or Ubuntu system: please install the likes of these packages yourself:"
    package_list | paste -sd' ' | fold -s -w 96 | sed 's/^/    /'
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    say "System packages: all $(package_list | wc -l) are there."
    return
  fi
  local sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "these packages are missing, and installing them needs root: ${missing[*]}"
    sudo=(sudo)
  fi
  say "System packages: installing ${#missing[@]} with ${sudo[*]} apt-get: ${missing[*]}"
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Where the libtorch of packages/libtorch.txt belongs; cmake/FindLibtorch.cmake looks there first.
libtorch_prefix() {
  local pins=$root/packages/libtorch.txt version hash
  version=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$pins")
  hash=$(sha256sum "$pins")
  echo "$cache/libtorch-$version-${hash:0:12}"
}

setup_libtorch() {
  local prefix work
  if [[ -n ${LIBTORCH_ROOT:-} ]]; then
    say "libtorch: LIBTORCH_ROOT is set, so the one in $LIBTORCH_ROOT will be used."
    return
  fi
  prefix=$(libtorch_prefix)
  if [[ -d $prefix ]]; then
    say "libtorch: there, in $prefix"
    return
  fi
  [[ $(uname -m) == x86_64 ]] ||
    fail "the pinned libtorch is for x86_64: point LIBTORCH_ROOT at one for $(uname -m), from 2.6 on"
  python3 -m pip --version >/dev/null 2>&1 ||
    fail "python3 has no pip to fetch libtorch with: install python3-pip, or set LIBTORCH_ROOT"
  say "libtorch: fetching the files pinned in packages/libtorch.txt (550 MB) for $prefix"
  mkdir -p "$cache"
  # Beside the prefix, so that the last act is a rename: an interrupted setup leaves no half prefix.
  work=$(mktemp -d "$cache/setup.XXXXXX")
  # shellcheck disable=SC2064  # the value now, not at exit
  trap "rm -rf '$work'" EXIT
  # The wheel's own platform and Python, whatever this machine has: see packages/libtorch.txt.
  python3 -m pip download --no-deps --only-binary=:all: --require-hashes --no-cache-dir \
    --disable-pip-version-check --python-version 3.11 --implementation cp --abi cp311 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    -d "$work/wheels" -r "$root/packages/libtorch.txt"
  python3 "$root/scripts/unpack_libtorch.py" "$work/prefix" "$work"/wheels/*.whl
  # -T: if another setup was quicker, fail here rather than move into its prefix.
  mv -T "$work/prefix" "$prefix" || [[ -d $prefix ]]
  rm -rf "$work"
  trap - EXIT
  say "libtorch: ready in $prefix ($(du -sh "$prefix" | cut -f1))"
}

# Where the environment of packages/python.txt belongs: one for each version of Python.
python_environment() {
  local pins=$root/packages/python.txt version hash
  version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  hash=$(sha256sum "$pins")
  echo "$cache/python$version-${hash:0:12}"
}

# The Python of that environment.
python_for_package() {
  local python
  python=$(python_environment)/bin/python
  [[ -x $python ]] || fail "there is no environment for the Python package: run ./dev setup python"
  echo "$python"
}

setup_python() {
  local place began=$SECONDS
  place=$(python_environment)
  if [[ -d $place ]]; then
    say "Python package: its environment is in $place"
    return
  fi
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "the Python package needs Python 3.11 or later"
  say "Python package: fetching what packages/python.txt pins (3 GB) for $place"
  # The last act is a rename, as above. The programs in its bin/ name the old place: use `bin/python -m`.
  rm -rf "$place.making"
  python3 -m venv "$place.making" || fail "python3 cannot make an environment: install python3-venv"
  "$place.making/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    --only-binary=:all: -r "$root/packages/python.txt"
  mv -T "$place.making" "$place" || [[ -d $place ]]
  say "Python package: ready after $((SECONDS - began)) s ($(du -sh "$place" | cut -f1))"
}
